"""``status`` of an RLExperiment on a cluster, at most 100 kB: what its operator tells. What it remembers is in the journal."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rljob.api.status import Condition
from rljob.api.status_model import Count, StatusModel, Word
from rljob.api.timestamps import Timestamp
from rljob.api.types import DecimalText, Text

MOST_ROWS = 200
"""Trials that a status lists. A Kubernetes object with every one of a thousand would be refused as too large."""
MOST_SEEDS = 100


class TrialStatus(StatusModel):
    """A trial that was judged."""

    trial: Count
    """Its number, from 0."""
    set: Annotated[str, Text(1024, "text", shortest=0)] = ""
    """What it sets in the template, each field by its last name."""
    seeds: Count = 1
    """Runs of it that count."""
    raw_frames: Count = 0
    """What its first run had played with the weights that have its score."""
    mean: Annotated[float, DecimalText()]
    """Mean return of the games that its best weights were judged by, over its seeds."""
    standard_error: Annotated[float, DecimalText(0)]
    """Its standard error: of several seeds that of the mean over seeds, of one that of its games."""
    newest_mean: Annotated[float, DecimalText()] | None = None
    """The same of its newest weights: less where it has fallen back."""
    state: Word = ""
    """Running, Waiting, Done, Pruned or Failed."""


class FreshVerdict(StatusModel):
    """The best trial on games that it was not chosen by."""

    mean: Annotated[float, DecimalText()]
    """Mean return, over its seeds."""
    standard_error: Annotated[float, DecimalText(0)]
    """Its standard error, as that of a trial."""
    episodes: Count
    """Games of each seed."""


class RLExperimentStatus(StatusModel):
    """What there is to know about an experiment."""

    observed_generation: Count = 0
    """The generation of the spec that this status describes; 0 before the first reconciliation."""
    trials: Count = 0
    """Settings that are tried in all."""
    done: Count = 0
    """Trials none of whose runs goes on."""
    running: Count = 0
    """Runs that play or are judged now."""
    failed: Count = 0
    """Runs that have failed; maxFailedTrials bounds them."""
    seconds: Count = 0
    """How long the experiment was at work, for budget.seconds."""
    best: TrialStatus | None = None
    """The best trial, or the best so far."""
    runs: list[Annotated[str, Text(63, "a name")]] = Field(default_factory=list, max_length=MOST_SEEDS)
    """The RLJobs of the best trial."""
    fresh: FreshVerdict | None = None
    """The best trial judged anew, at the end: the number to quote."""
    rows: list[TrialStatus] = Field(default_factory=list, max_length=MOST_ROWS)
    """The best trials that were judged, the best first; the journal has all."""
    journal_lines: Count = 0
    """Lines of the journal, in ConfigMaps with the label rljob.dev/experiment."""
    start_time: Timestamp | None = None
    """When its operator first acted on it."""
    completion_time: Timestamp | None = None
    """When it ended; set once."""
    conditions: list[Condition] = Field(default_factory=list, max_length=8)
    """Its state and its reasons; find each by its type."""
