"""What the learner says of itself on ``/status``: one type for the learner, which writes it, and for the controller and the
views, which read it. (``status.learner`` of an RLJob, in ``api/status.py``, is what the controller says of the learner.)

A learner of another release, or one that is broken, is read, too: what is wrong in its document is missing, never zero.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Self

from pydantic import Field

from rljob.api.status_document import (
    LARGEST_MASS,
    LEFT_OUT,
    Amount,
    Count,
    Counts,
    Document,
    Flag,
    Number,
    Numbers,
    Object,
    Plain,
    Score,
    Share,
    Whole,
    Words,
    WordsByName,
    json_document,
    number,
)

VALUE_LOSSES: Final = ("value_loss", "critic_loss", "loss")
"""What algorithms call the loss of their values; where values are all that is learned, it is the whole loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStatus(Document):
    """What an actor reported of itself in its last heartbeat. Counts are of its current incarnation alone."""

    name: Plain = ""
    slot: Whole = 0
    """Its place on the ladder of epsilons, from 0."""
    incarnation: Plain = ""
    """One life of the actor's process."""
    state: Plain = ""
    """In its own words (Starting, Running, Blocked, ...); ``Lost`` and ``Finished`` are the shard's."""
    steps: Whole = 0
    """Agent steps taken."""
    raw_frames: Whole = 0
    """Emulator frames played."""
    produced: Whole = 0
    """Transitions made into chunks, or steps made into unrolls."""
    steps_per_second: Number = 0.0
    policy_version: Whole = 0
    """Version of the weights that it acts with; 0 where it acts at random."""
    stages: Numbers = field(default_factory=dict)
    """Seconds spent in each stage of its loop."""
    blocked_seconds: Number = 0.0
    """Time that it waited for a credit."""
    process: Numbers = field(default_factory=dict)
    """What its process takes: CPU, memory, open files, bytes in sockets."""
    age_seconds: Number = 0.0
    """Time since it was last heard of."""


VERDICT_LEVEL: Final = 0.99
"""Probability with which a verdict that is decided before its last game is right, however early that is."""


def in_words(bound: float | None) -> str:
    """What a mean return is at least, to stand behind the mean; empty where nothing is sure."""
    return "" if bound is None else f", at least {bound:.4g} with {VERDICT_LEVEL * 100:g} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Document):
    """One evaluation, as the learner heard of it. Its place in the run is that of the weights that were judged."""

    version: Count = 0
    """Version of the weights; it grows from one verdict to the next. 0 where it is not known."""
    updates: Count = 0
    raw_frames: Count = 0
    steps: Count = 0
    mean: Number
    """Return a game."""
    standard_error: Amount | None = None
    """None of a single game."""
    episodes: Count = 0
    """Games that were played to their end."""
    mean_length_steps: Amount | None = None
    """Their mean length, in agent steps; None where it is not known."""
    seed: Whole | None = None
    """Seed of the games; None where it is not known."""
    seconds: Amount = 0.0
    """How long it took."""
    finished: Flag = True
    """False where it was given up early, which makes it no verdict."""
    bound: Annotated[Number | None, LEFT_OUT] = None
    """Where it was decided before its last game: the mean of all is at least this with ``VERDICT_LEVEL``."""
    metrics: Numbers = field(default_factory=dict)
    """What the environment itself reports of its games: the mean of each number over those that have it."""
    metric_games: Numbers = field(default_factory=dict)
    """How many games have it, of each number that not all have."""
    time: Number = 0.0
    """When the learner heard of it, Unix seconds by its clock."""

    @property
    def how_sure(self) -> str:
        """The bound in words, to stand behind the mean; empty where all games were played."""
        return in_words(self.bound)

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of verdicts: one that was played to its end ranks above one that was given up, and among equals the mean
        decides. So a run that never came near its target has a best policy, too."""
        return self.finished, self.mean


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationUnderWay(Document):
    """How far an evaluation has come: ``games`` of ``episodes`` have ended. ``mean``: their mean return, None before one has."""

    version: Count = 0
    games: Count
    episodes: Count
    mean: Number | None = None
    at_least: Number | None = None
    """What the mean of all is at least, with ``VERDICT_LEVEL``; None where nothing is sure yet."""
    alone: Flag = False
    """Training stands still meanwhile."""
    process: Numbers = field(default_factory=dict)
    """What the evaluator's process takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatement(Document):
    """What the learner reports of its checkpoints, while it is up and at its end.

    After a failure, all but ``state`` and ``message`` are those of the newest checkpoint that is valid.
    """

    step: Count = 0
    path: Plain = ""
    digest: Plain = ""
    state: Plain = ""
    """Valid, Missing or Failed."""
    message: Plain = ""
    written_unix: Amount | None = None
    """None where there is none."""
    requested_unix: Amount = 0.0
    """The newest request that it answers, as it was written by the asking process."""
    interval_seconds: Annotated[Amount | None, LEFT_OUT] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkStatement(Document):
    """What became of the fork that the learner was asked for last (``spec.fork``)."""

    id: Plain = ""
    state: Plain = ""
    """Waiting, Done or Refused."""
    message: Words = ""
    """Why it was refused, or what was taken."""
    updates: Count | None = None
    """The learner's own updates when it was done; None before, and of one that an earlier life has done."""
    raw_frames: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary(Document):
    """What the replay shards hold, summed up."""

    items: Count | None = None
    """Transitions that can be sampled now."""
    capacity: Count | None = None
    nbytes: Annotated[Count | None, Field(alias="bytes")] = None
    fill: Amount | None = None
    """How full it is, 0 to 1: by steps, bytes or places for chunks, whichever is nearest to its limit."""
    durable: Flag | None = None
    """Whether everything that was acknowledged is in the logs."""
    state: Plain = ""
    """What every shard has reached of warming, filling, serving."""
    durability: Annotated[Plain | None, LEFT_OUT] = None
    """``On`` where a log is kept, else ``Off``; None before a shard has told it."""
    not_durable_because: Annotated[Words | None, LEFT_OUT] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary(Document):
    """What became of the unrolls that this life of the learner has received, in unrolls."""

    received: Count | None = None
    learned: Count | None = None
    dropped: Counts = field(default_factory=dict)
    """By reason."""
    waiting: Count | None = None
    in_flight: Count | None = None
    """Waiting, assembled or being learned."""
    capacity: Count | None = None
    head_age_updates: Count | None = None
    """Updates since the weights of the oldest that waits; None where none does."""
    arrival_age_updates: Count | None = None
    """The age of weights that nine tenths of the latest unrolls had at most when they arrived; None before the first."""
    duplicates: Count | None = None
    """Received before, and not counted again."""
    produced: Count | None = None
    """Made by the actors that are there, as they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerStatus(Document):
    """Everything that the learner says of itself at one moment; None: it does not say, or can't know yet.

    ``rljob_``-metrics, TensorBoard and ``metrics.jsonl`` are made of its document, by the names that it has there.
    """

    taken_seconds: Annotated[float, Field(exclude=True)] = 0.0
    """When it was asked for, Unix seconds by the clock of the process that asked; not in the document."""
    update_figures: Annotated[Mapping[str, float], Field(exclude=True)] = field(default_factory=dict)
    """What an update reports, ``loss`` among it, by names of the algorithm's own. They stand in the document beside the other
    figures."""

    role: Plain = "learner"
    state: Plain = ""
    epoch: Count = 0
    """The life of the learner; 0 where it does not say."""
    updates: Count | None = None
    samples: Count | None = None
    """Transitions learned from, repeats included."""
    steps: Count | None = None
    steps_total: Count | None = None
    """Agent steps of all actors, also under its older name ``steps``."""
    raw_frames_total: Count | None = None
    ready_batches: Count | None = None
    skipped_updates: Count | None = None
    """Updates of this life whose loss was not finite."""
    left_out_batches: Count | None = None
    """Batches of this life that running statistics have left out, as a number in them was not finite."""
    recompiles: Count | None = None
    resubscriptions: Count | None = None
    learning_rate: Amount | None = None

    following: Annotated[Plain | None, LEFT_OUT] = None
    """Names the live values, schedule and fork that are in effect (`rljob.api.live`)."""
    scheduled: Annotated[Count | None, LEFT_OUT] = None
    """Entries of the schedule that are in effect."""
    fork: Annotated[ForkStatement | None, LEFT_OUT] = None

    episodes_total: Count | None = None
    mean_return: Score | None = None
    """Mean over the last ``games`` games of the greedier half of the actors."""
    games: Count | None = None
    mean_length_steps: Amount | None = None
    """Mean length of these games, in agent steps."""
    episode: Numbers = field(default_factory=dict)
    """What the environment itself reports of its episodes: the mean of each number over those of these games that have it."""
    episode_games: Numbers = field(default_factory=dict)
    """How many of these games have it, of each number that not all have."""
    queue_depth_batches: Amount | None = None
    """Batches that the learner may still draw, or that wait for it; None where nothing limits it."""
    queue_bound_batches: Amount | None = None
    """The most that depth can be."""
    samples_per_insert: Amount | None = None
    policy_lag_updates: Amount | None = None
    """The mean age of the weights that acted, of the newest batches."""
    policy_lag_updates_p50: Amount | None = None
    policy_lag_updates_p95: Amount | None = None
    policy_lag_histogram: Object = field(default_factory=dict)
    """``bounds``, ``counts`` and ``sum``. Not looked into when read."""
    learner_wait_fraction: Share | None = None
    actors_blocked_fraction: Share | None = None
    updates_per_second: Amount | None = None
    steps_per_second: Amount | None = None
    raw_frames_per_second: Amount | None = None
    consumption_per_second: Annotated[Amount | None, LEFT_OUT] = None
    """What the learner learns from: transitions as often as they are drawn, or unrolls."""
    production_per_second: Annotated[Amount | None, LEFT_OUT] = None
    """What all actors make: transitions or unrolls."""
    actors: tuple[ActorStatus, ...] = ()
    """Those that the learner knows."""
    stages: Object = field(default_factory=dict)
    """Seconds spent in each stage, by role. Not looked into when read."""
    rss_bytes: Count | None = None
    processes: Object = field(default_factory=dict)
    """What the processes of each role take, added up: CPU, memory, open files, bytes in sockets. Not looked into when read."""

    replay: Annotated[ReplaySummary | None, LEFT_OUT] = None
    queue: Annotated[QueueSummary | None, LEFT_OUT] = None
    """The queue of unrolls, in a job without replay."""
    standstill: Words = ""
    """Why neither batches nor inserts move; empty where they do."""
    lag_limit_updates: Annotated[Amount | None, LEFT_OUT] = None
    """The age in updates above which unrolls are given up."""
    given_up: Words = ""
    """That many of them are; empty where they are not."""
    rejected_total: Annotated[Object | None, LEFT_OUT] = None
    """Unrolls refused, by reason. Not looked into when read."""
    weights: Object = field(default_factory=dict)
    """Fetches answered and refused. Not looked into when read."""
    evaluations: tuple[Verdict, ...] = ()
    """The newest thousand, oldest first."""
    evaluating: EvaluationUnderWay | None = None
    checkpoint: CheckpointStatement | None = None
    compiled: Flag | None = None
    captured: Flag | None = None
    refused_handshakes_total: Count | None = None
    untracked: Annotated[WordsByName | None, LEFT_OUT] = None
    """Trackers beside the learner in its pod that take no points, and why. None: it is not known, or another says it."""
    gpu: Object = field(default_factory=dict)
    """How busy and how full it is; empty without one. Not looked into when read."""
    inference: Annotated[Object | None, LEFT_OUT] = None
    """The status of the inference server in the learner's process. Not looked into when read."""

    device: Plain | None = None
    device_name: Annotated[Plain | None, LEFT_OUT] = None
    device_memory_bytes: Annotated[Count | None, LEFT_OUT] = None
    driver: Annotated[Plain | None, LEFT_OUT] = None
    batch_size: Count | None = None
    """Transitions or unrolls of a batch."""
    precision: Plain | None = None
    compute_seconds: Object = field(default_factory=dict)
    """How long an update took where and how it was tried, by the words for that: on each device as that is fastest, or, where
    there is one, in each arithmetic and order in memory. Not looked into when read."""
    mirror: Plain | None = None
    """Where the mirror of the replay is, and why."""
    rewards: Plain | None = None
    environment: Plain | None = None
    """What training sees of them."""
    started_unix: Number | None = None

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
        said = document if isinstance(document, Mapping) else {}
        own = {name: each for name, each in said.items() if name in _NAMES}
        figures = {}
        for name in said.keys() - _NAMES:
            with suppress(ValueError):
                figures[name] = number(said[name], LARGEST_MASS)
        found: Self = super(LearnerStatus, cls).lenient(own if said else document)
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


_NAMES: Final = frozenset(each.name for each in fields(LearnerStatus)) - {"taken_seconds", "update_figures"}
RECORDED_NAMES: Final = frozenset(
    [
        *_NAMES,
        *("loss", "gradient_norm", "loss_scale"),
        *("kind", "time_unix", "elapsed_seconds", "raw_frames", "actors_running", "stage", "evaluation"),
    ]
)
"""Names in the record of a run, or what stands in them before the first ``/``, that say something already: the status's own,
those that every update reports, and those that a record adds. What an algorithm measures beside has others."""
