"""``status`` of an RLExperiment on a cluster, at most 100 kB: what its operator tells. What it remembers is in the journal."""

from typing import Annotated

from pydantic import Field

from rljob.api.status import Condition
from rljob.api.status_model import Count, StatusModel, Timestamp, Word
from rljob.api.types import DecimalText, Text

MOST_ROWS = 200
"""Trials that a status lists. A Kubernetes object with every one of a thousand would be refused as too large."""
MOST_SEEDS = 100


class TrialStatus(StatusModel):
    """A judged trial."""

    trial: Count
    """Number of the trial, from 0."""
    set: Annotated[str, Text(1024, "text", shortest=0)] = ""
    """Settings, each field by its last name."""
    seeds: Count = 1
    """Number of runs that count."""
    raw_frames: Count = 0
    """Raw frames of its first run at the weights that have its score."""
    mean: Annotated[float, DecimalText()]
    """Mean return of its best weights, over its seeds."""
    standard_error: Annotated[float, DecimalText(0)]
    """Standard error of the mean: over seeds, or over games if it has one seed."""
    newest_mean: Annotated[float, DecimalText()] | None = None
    """Mean return of its newest weights."""
    state: Word = ""
    """Running, Waiting, Done, Pruned or Failed."""


class FreshVerdict(StatusModel):
    """The best trial on games that did not choose it."""

    mean: Annotated[float, DecimalText()]
    """Mean return, over its seeds."""
    standard_error: Annotated[float, DecimalText(0)]
    """Standard error of the mean."""
    episodes: Count
    """Games of each seed."""


class RLExperimentStatus(StatusModel):
    """Status of an experiment."""

    observed_generation: Count = 0
    """Generation of the spec that this status describes; 0 before the first reconciliation."""
    trials: Count = 0
    """Number of trials in all."""
    done: Count = 0
    """Trials whose runs have all ended."""
    running: Count = 0
    """Runs that play or are judged."""
    failed: Count = 0
    """Failed runs; maxFailedTrials limits them."""
    seconds: Count = 0
    """Working time, for budget.seconds."""
    best: TrialStatus | None = None
    """The best trial so far."""
    runs: list[Annotated[str, Text(63, "a name")]] = Field(default_factory=list, max_length=MOST_SEEDS)
    """RLJobs of the best trial."""
    fresh: FreshVerdict | None = None
    """The best trial, judged again on new games at the end: the number to quote."""
    rows: list[TrialStatus] = Field(default_factory=list, max_length=MOST_ROWS)
    """Judged trials, the best first; the journal has all."""
    journal_lines: Count = 0
    """Lines of the journal, in ConfigMaps with the label rljob.dev/experiment."""
    start_time: Timestamp | None = None
    """When the operator first acted on it."""
    completion_time: Timestamp | None = None
    """When the experiment ended."""
    conditions: list[Condition] = Field(default_factory=list, max_length=8)
    """Conditions; find each by its type."""
