"""What the learner says of itself on ``/status``: one type for the learner, which writes it, and for the controller and the
views, which read it. (``status.learner`` of an RLJob, in ``api/status.py``, is what the controller says of the learner.)

A learner of another release, or one that is broken, is read, too: what is wrong in its document is missing, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

from rljob.api.status_document import (
    Document,
    flag,
    json_document,
    json_object,
    lenient,
    mass,
    number,
    numbers,
    plain,
    plain_rows,
    rows_in_order,
    text,
    whole,
    wire,
    within,
)

_LARGEST = 1e15
"""Beyond any run; a larger figure is garbage."""
VALUE_LOSSES: Final = ("value_loss", "critic_loss", "loss")
"""What algorithms call the loss of their values; where values are all that is learned, it is the whole loss."""
_LONGEST_TEXT = 2000
"""Characters; a condition's message may have more, but more is not read."""

_amount, _count, _share = within(0.0, _LARGEST), within(0, _LARGEST, whole), within(0.0, 1.0)
_score = within(-_LARGEST, _LARGEST)


def _words(value: object) -> str:
    return text(value)[:_LONGEST_TEXT]


def _words_by_name(value: object) -> dict[str, str]:
    return {name: _words(each) for name, each in json_object(value).items()}


def _counts(value: object) -> dict[str, int]:
    return {name: _count(each) for name, each in json_object(value).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStatus(Document):
    """What an actor reported of itself in its last heartbeat. Counts are of its current incarnation alone."""

    name: str = wire(text, default="")
    slot: int = wire(whole, default=0)
    """Its place on the ladder of epsilons, from 0."""
    incarnation: str = wire(text, default="")
    """One life of the actor's process."""
    state: str = wire(text, default="")
    """In its own words (Starting, Running, Blocked, ...); ``Lost`` and ``Finished`` are the shard's."""
    steps: int = wire(whole, default=0)
    """Agent steps taken."""
    raw_frames: int = wire(whole, default=0)
    """Emulator frames played."""
    produced: int = wire(whole, default=0)
    """Transitions made into chunks, or steps made into unrolls."""
    steps_per_second: float = wire(number, default=0.0)
    policy_version: int = wire(whole, default=0)
    """Version of the weights that it acts with; 0 where it acts at random."""
    stages: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """Seconds spent in each stage of its loop."""
    blocked_seconds: float = wire(number, default=0.0)
    """Time that it waited for a credit."""
    process: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """What its process takes: CPU, memory, open files, bytes in sockets."""
    age_seconds: float = wire(number, default=0.0)
    """Time since it was last heard of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Document):
    """One evaluation, as the learner heard of it. Its place in the run is that of the weights that were judged."""

    version: int = wire(_count, default=0)
    """Version of the weights; it grows from one verdict to the next. 0 where it is not known."""
    updates: int = wire(_count, default=0)
    raw_frames: int = wire(_count, default=0)
    steps: int = wire(_count, default=0)
    mean: float = wire(number)
    """Return a game."""
    standard_error: float | None = wire(_amount, default=None)
    """None of a single game."""
    episodes: int = wire(_count, default=0)
    """Games that were played to their end."""
    mean_length_steps: float | None = wire(_amount, default=None)
    """Their mean length, in agent steps; None where it is not known."""
    seed: int | None = wire(whole, default=None)
    """Seed of the games; None where it is not known."""
    seconds: float = wire(_amount, default=0.0)
    """How long it took."""
    finished: bool = wire(flag, default=True)
    """False where it was given up early, which makes it no verdict."""
    metrics: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """What the environment itself reports of its games: the mean of each number over those that have it."""
    metric_games: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """How many games have it, of each number that not all have."""
    time: float = wire(number, default=0.0)
    """When the learner heard of it, Unix seconds by its clock."""

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of verdicts: one that was played to its end ranks above one that was given up, and among equals the mean
        decides. So a run that never came near its target has a best policy, too."""
        return self.finished, self.mean


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationUnderWay(Document):
    """How far an evaluation has come: ``games`` of ``episodes`` have ended. ``mean``: their mean return, None before one has."""

    version: int = wire(_count, default=0)
    games: int = wire(_count)
    episodes: int = wire(_count)
    mean: float | None = wire(number, default=None)
    alone: bool = wire(flag, default=False)
    """Training stands still meanwhile."""
    process: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """What the evaluator's process takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatement(Document):
    """What the learner reports of its checkpoints, while it is up and at its end.

    After a failure, all but ``state`` and ``message`` are those of the newest checkpoint that is valid.
    """

    step: int = wire(_count, default=0)
    path: str = wire(text, default="")
    digest: str = wire(text, default="")
    state: str = wire(text, default="")
    """Valid, Missing or Failed."""
    message: str = wire(text, default="")
    written_unix: float | None = wire(_amount, default=None)
    """None where there is none."""
    requested_unix: float = wire(_amount, default=0.0)
    """The newest request that it answers, as it was written by the asking process."""
    interval_seconds: float | None = wire(_amount, default=None, left_out=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary(Document):
    """What the replay shards hold, summed up."""

    items: int | None = wire(_count, default=None)
    """Transitions that can be sampled now."""
    capacity: int | None = wire(_count, default=None)
    nbytes: int | None = wire(_count, key="bytes", default=None)
    fill: float | None = wire(_amount, default=None)
    """How full it is, 0 to 1: by steps, bytes or places for chunks, whichever is nearest to its limit."""
    durable: bool | None = wire(flag, default=None)
    """Whether everything that was acknowledged is in the logs."""
    state: str = wire(text, default="")
    """What every shard has reached of warming, filling, serving."""
    durability: str | None = wire(text, default=None, left_out=True)
    """``On`` where a log is kept, else ``Off``; None before a shard has told it."""
    not_durable_because: str | None = wire(_words, default=None, left_out=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary(Document):
    """What became of the unrolls that this life of the learner has received, in unrolls."""

    received: int | None = wire(_count, default=None)
    learned: int | None = wire(_count, default=None)
    dropped: Mapping[str, int] = wire(_counts, default=dict, write=dict)
    """By reason."""
    waiting: int | None = wire(_count, default=None)
    in_flight: int | None = wire(_count, default=None)
    """Waiting, assembled or being learned."""
    capacity: int | None = wire(_count, default=None)
    head_age_updates: int | None = wire(_count, default=None)
    """Updates since the weights of the oldest that waits; None where none does."""
    arrival_age_updates: int | None = wire(_count, default=None)
    """The age of weights that nine tenths of the latest unrolls had at most when they arrived; None before the first."""
    duplicates: int | None = wire(_count, default=None)
    """Received before, and not counted again."""
    produced: int | None = wire(_count, default=None)
    """Made by the actors that are there, as they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerStatus(Document):
    """Everything that the learner says of itself at one moment; None: it does not say, or can't know yet.

    ``rljob_``-metrics, TensorBoard and ``metrics.jsonl`` are made of its document, by the names that it has there.
    """

    taken_seconds: float = 0.0
    """When it was asked for, Unix seconds by the clock of the process that asked; not in the document."""
    update_figures: Mapping[str, float] = field(default_factory=dict)
    """What an update reports, ``loss`` among it, by names of the algorithm's own. They stand in the document beside the other
    figures."""

    role: str = wire(text, default="learner")
    state: str = wire(text, default="")
    epoch: int = wire(_count, default=0)
    """The life of the learner; 0 where it does not say."""
    updates: int | None = wire(_count, default=None)
    samples: int | None = wire(_count, default=None)
    """Transitions learned from, repeats included."""
    steps: int | None = wire(_count, default=None)
    steps_total: int | None = wire(_count, default=None)
    """Agent steps of all actors, also under its older name ``steps``."""
    raw_frames_total: int | None = wire(_count, default=None)
    ready_batches: int | None = wire(_count, default=None)
    skipped_updates: int | None = wire(_count, default=None)
    """Updates of this life whose loss was not finite."""
    left_out_batches: int | None = wire(_count, default=None)
    """Batches of this life that running statistics have left out, as a number in them was not finite."""
    recompiles: int | None = wire(_count, default=None)
    resubscriptions: int | None = wire(_count, default=None)
    learning_rate: float | None = wire(_amount, default=None)

    episodes_total: int | None = wire(_count, default=None)
    mean_return: float | None = wire(_score, default=None)
    """Mean over the last ``games`` games of the greedier half of the actors."""
    games: int | None = wire(_count, default=None)
    mean_length_steps: float | None = wire(_amount, default=None)
    """Mean length of these games, in agent steps."""
    episode: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """What the environment itself reports of its episodes: the mean of each number over those of these games that have it."""
    episode_games: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """How many of these games have it, of each number that not all have."""
    queue_depth_batches: float | None = wire(_amount, default=None)
    """Batches that the learner may still draw, or that wait for it; None where nothing limits it."""
    queue_bound_batches: float | None = wire(_amount, default=None)
    """The most that depth can be."""
    samples_per_insert: float | None = wire(_amount, default=None)
    policy_lag_updates: float | None = wire(_amount, default=None)
    """The mean age of the weights that acted, of the newest batches."""
    policy_lag_updates_p50: float | None = wire(_amount, default=None)
    policy_lag_updates_p95: float | None = wire(_amount, default=None)
    policy_lag_histogram: Mapping[str, Any] = wire(json_object, default=dict, write=dict)
    """``bounds``, ``counts`` and ``sum``. Not looked into when read."""
    learner_wait_fraction: float | None = wire(_share, default=None)
    actors_blocked_fraction: float | None = wire(_share, default=None)
    updates_per_second: float | None = wire(_amount, default=None)
    steps_per_second: float | None = wire(_amount, default=None)
    raw_frames_per_second: float | None = wire(_amount, default=None)
    consumption_per_second: float | None = wire(_amount, default=None, left_out=True)
    """What the learner learns from: transitions as often as they are drawn, or unrolls."""
    production_per_second: float | None = wire(_amount, default=None, left_out=True)
    """What all actors make: transitions or unrolls."""
    actors: tuple[ActorStatus, ...] = wire(rows_in_order(ActorStatus), default=(), write=plain_rows)
    """Those that the learner knows."""
    stages: Mapping[str, Mapping[str, float]] = wire(json_object, default=dict, write=dict)
    """Seconds spent in each stage, by role. Not looked into when read."""
    rss_bytes: int | None = wire(_count, default=None)
    processes: Mapping[str, Mapping[str, float]] = wire(json_object, default=dict, write=dict)
    """What the processes of each role take, added up: CPU, memory, open files, bytes in sockets. Not looked into when read."""

    replay: ReplaySummary | None = wire(lenient(ReplaySummary), default=None, write=plain, left_out=True)  # noqa: RUF009 - a field
    queue: QueueSummary | None = wire(lenient(QueueSummary), default=None, write=plain, left_out=True)  # noqa: RUF009 - a field
    """The queue of unrolls, in a job without replay."""
    standstill: str = wire(_words, default="")
    """Why neither batches nor inserts move; empty where they do."""
    lag_limit_updates: float | None = wire(_amount, default=None, left_out=True)
    """The age in updates above which unrolls are given up."""
    given_up: str = wire(_words, default="")
    """That many of them are; empty where they are not."""
    rejected_total: Mapping[str, int] | None = wire(json_object, default=None, left_out=True)
    """Unrolls refused, by reason. Not looked into when read."""
    weights: Mapping[str, Any] = wire(json_object, default=dict, write=dict)
    """Fetches answered and refused. Not looked into when read."""
    evaluations: tuple[Verdict, ...] = wire(rows_in_order(Verdict), default=(), write=plain_rows)
    """The newest thousand, oldest first."""
    evaluating: EvaluationUnderWay | None = wire(lenient(EvaluationUnderWay), default=None, write=plain)  # noqa: RUF009 - a field
    checkpoint: CheckpointStatement | None = wire(lenient(CheckpointStatement), default=None, write=plain)  # noqa: RUF009 - a field
    compiled: bool | None = wire(flag, default=None)
    captured: bool | None = wire(flag, default=None)
    refused_handshakes_total: int | None = wire(_count, default=None)
    untracked: Mapping[str, str] | None = wire(_words_by_name, default=None, left_out=True)
    """Trackers beside the learner in its pod that take no points, and why. None: it is not known, or another says it."""
    gpu: Mapping[str, Any] = wire(json_object, default=dict, write=dict)
    """How busy and how full it is; empty without one. Not looked into when read."""
    inference: Mapping[str, Any] | None = wire(json_object, default=None, left_out=True)
    """The status of the inference server in the learner's process. Not looked into when read."""

    device: str | None = wire(text, default=None)
    device_name: str | None = wire(text, default=None, left_out=True)
    device_memory_bytes: int | None = wire(_count, default=None, left_out=True)
    driver: str | None = wire(text, default=None, left_out=True)
    batch_size: int | None = wire(_count, default=None)
    """Transitions or unrolls of a batch."""
    precision: str | None = wire(text, default=None)
    compute_seconds: Mapping[str, Any] = wire(json_object, default=dict, write=dict)
    """How long an update took where and how it was tried, by the words for that: on each device as that is fastest, or, where
    there is one, in each arithmetic and order in memory. Not looked into when read."""
    mirror: str | None = wire(text, default=None)
    """Where the mirror of the replay is, and why."""
    rewards: str | None = wire(text, default=None)
    environment: str | None = wire(text, default=None)
    """What training sees of them."""
    started_unix: float | None = wire(number, default=None)

    @classmethod
    def answered(cls, content: bytes | str, taken_seconds: float) -> Self:
        """The status in an answer that was asked for at ``taken_seconds``. Raises ValueError, in words for the user, where it is
        no document, or has no believable count of updates, without which nothing can be judged."""
        status = cls.lenient(json_document(content))
        if status.updates is None:
            raise ValueError("its status has no count of updates")
        return replace(status, taken_seconds=taken_seconds)

    @classmethod
    def lenient(cls, document: object) -> Self:
        """As of any document. Numbers by other names than those of its fields are what an update reports."""
        found, figures = cls._read(document, strict=False), {}
        for name in json_object(document).keys() - _NAMES:
            with suppress(ValueError):
                figures[name] = mass(document[name])  # type: ignore[index] # an object, as was just found
        return replace(found, update_figures=figures)

    @property
    def value_loss(self) -> float | None:
        """The loss of what judges states or actions: the first of ``VALUE_LOSSES`` that an update reports."""
        return next((self.update_figures[name] for name in VALUE_LOSSES if name in self.update_figures), None)

    def to_document(self) -> dict[str, Any]:
        """As plain JSON values, what an update reports among the others."""
        return {"loss": None, **self.update_figures, **Document.to_document(self)}

    def for_decisions(self) -> Self:
        """Without what is for views alone and makes up most of it; of its actors, their names and versions."""
        actors = tuple(ActorStatus(name=each.name, policy_version=each.policy_version) for each in self.actors)
        return replace(self, actors=actors, policy_lag_histogram={}, weights={}, gpu={}, inference=None)


_NAMES: Final = frozenset(each.name for each in fields(LearnerStatus))
RECORDED_NAMES: Final = frozenset(
    [
        *_NAMES,
        *("loss", "gradient_norm", "loss_scale"),
        *("kind", "time_unix", "elapsed_seconds", "raw_frames", "actors_running", "stage", "evaluation"),
    ]
)
"""Names in the record of a run, or what stands in them before the first ``/``, that say something already: the status's own,
those that every update reports, and those that a record adds. What an algorithm measures beside has others."""
