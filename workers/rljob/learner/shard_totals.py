"""What the replay shards report, added up: totals that never fall, and no figures of a shard that is gone; and what they say
where the learner waits for batches while the actors wait to insert (`standstill`).

A shard that is gone leaves only totals, games and actors (``ShardStatus.gone``), so that sums hold what is there now.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

from rljob.api.episode_metrics import means
from rljob.api.learner_status import ReplaySummary
from rljob.ingest.shard_status import ActorStatus, Episode, LimiterStatus, ShardStatus
from rljob.telemetry.flat_figures import GAMES_TO_GO_BY

GAMES_IN_MEAN = 20
_ORDER = {"warming": 0, "filling": 1, "serving": 2}


def limited(figures: Iterable[float | None]) -> float | None:
    """The sum of a figure over the shards that report it, None where none does: without a samples-per-insert ratio there is no
    queue."""
    reported = [figure for figure in figures if figure is not None]
    return sum(reported) if reported else None


def replay_summary(shards: Sequence[ShardStatus]) -> ReplaySummary:
    """What the shards hold: sums over them, durable only where all are."""
    durability = {shard.durability for shard in shards if shard.durability}
    return ReplaySummary(
        items=sum(shard.items for shard in shards),
        capacity=sum(shard.capacity for shard in shards),
        nbytes=sum(shard.nbytes for shard in shards),
        fill=sum(shard.fill for shard in shards) / len(shards) if shards else 0.0,
        durable=bool(shards) and all(shard.durable for shard in shards),
        # The least advanced of those that are up.
        state=min((s.state for s in shards if s.state), key=lambda state: _ORDER.get(state, 0), default="warming"),
        durability=("On" if "On" in durability else "Off") if durability else None,
        not_durable_because=next((s.redis.reason for s in shards if not s.durable and s.redis.reason), None),
    )


def actors(shards: Sequence[ShardStatus]) -> list[ActorStatus]:
    """Every actor once, in the order of names; where several shards know it, what the one with the freshest news says."""
    newest: dict[str, ActorStatus] = {}
    for shard in shards:
        for actor in shard.actors:
            if actor.name not in newest or actor.age_seconds < newest[actor.name].age_seconds:
                newest[actor.name] = actor
    return [newest[name] for name in sorted(newest)]


def stage_totals(processes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The seconds that several processes of one role spent in each stage, added up."""
    seconds: dict[str, float] = {}
    for stages in processes:
        for stage, value in stages.items():
            seconds[stage] = seconds.get(stage, 0.0) + value
    return seconds


def steps_and_raw_frames(shards: Sequence[ShardStatus]) -> tuple[int, int]:
    """(agent steps, raw frames) of the whole run. Actors report to every shard, so each counts all of them: no sum."""
    steps = max((shard.steps_total for shard in shards), default=0)
    return steps, max((shard.raw_frames_total for shard in shards), default=0)


def mean_return(shards: Sequence[ShardStatus], games: int = GAMES_IN_MEAN) -> tuple[float | None, int]:
    """Mean return of the last ``games`` games of the greedier half of the ladder, and how many there were (None, 0 at first).

    Each finished game is reported to one shard. Which one, changes when a shard goes or comes back, so the newest are told by the
    time at which their shard heard of them.
    """
    newest = [episode.game_return for episode in _finished(shards)[-games:]]
    return (sum(newest) / len(newest), len(newest)) if newest else (None, 0)


def mean_length_steps(shards: Sequence[ShardStatus]) -> float | None:
    """Mean length of the games that ``mean_return`` is of, in agent steps; None before the first has ended."""
    return fmean(lengths) if (lengths := [each.length for each in _finished(shards)[-GAMES_IN_MEAN:]]) else None


def episode_metrics(shards: Sequence[ShardStatus]) -> tuple[dict[str, float], dict[str, int]]:
    """What environments report of the games that ``mean_return`` is of, as `means` answers."""
    return means([episode.metrics for episode in _finished(shards)[-GAMES_IN_MEAN:]])


def _finished(shards: Sequence[ShardStatus]) -> list[Episode]:
    """The games of the greedier half of the ladder, oldest first."""
    finished = [episode for shard in shards for episode in shard.episodes if episode.greedy_half]
    return sorted(finished, key=lambda episode: episode.time)


def return_to_go_by(shards: Sequence[ShardStatus]) -> float | None:
    """``mean_return`` once it is of ``GAMES_TO_GO_BY`` games, None before: the first games to end after a start are the
    shortest ones, which says something about their score."""
    mean, games = mean_return(shards)
    return mean if games >= GAMES_TO_GO_BY else None


_OWN: Final = ("inserted_total", "sampled_total", "episodes_total")
"""A shard counts transitions and games of its own part: one that begins from nothing adds to what was counted before."""
_OF_ALL: Final = ("steps_total", "raw_frames_total")
"""Every shard counts the steps of the whole run: one that begins from nothing counts what is in the older figure again."""


class ShardReport:
    """The latest status of one shard, over all the services that bear its number. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._status: ShardStatus | None = None
        self._totals: dict[str, Any] = dict.fromkeys((*_OWN, *_OF_ALL), 0)
        self._last = self._totals
        self._heard_at = 0.0

    def heard(self, status: ShardStatus, now: float) -> None:
        """Take in what the shard has reported."""
        # One that warms up has not read yet from where it will go on counting.
        if status.state != "warming" or self._status is None:
            new = {name: getattr(status, name) for name in self._totals}
            grown = {name: self._totals[name] + max(0, new[name] - self._last[name]) for name in _OWN}
            self._totals = grown | {name: max(self._totals[name], new[name]) for name in _OF_ALL}
            self._last = new
        self._heard_at = now
        self._status = replace(status, **self._totals)

    def status(self, now: float, *, gone: bool) -> ShardStatus | None:
        """The status with the totals of all lives; None before the first. For one that is ``gone``, what remains true."""
        status = self._status
        return status.gone(now - self._heard_at) if gone and status is not None else status


STANDSTILL_SECONDS = 10.0
"""Without a batch for so long, while no actor may insert, nothing moves; a slow actor's chunk takes less."""


@dataclass(frozen=True, slots=True)
class ShardView:
    """What the learner knows of one shard: whether it is subscribed to it, whether it answers, its latest status."""

    index: int
    subscribed: bool
    quiet: bool
    status: ShardStatus | None = None


def standstill(waited_seconds: float, shards: Sequence[ShardView], actors: Sequence[ActorStatus]) -> str:
    """A sentence that names what each shard waits for, or nothing where something moves.

    ``waited_seconds``: since the last batch became ready, while one was wanted. ``actors``: what the shards last heard of each;
    where none is there, or one is not blocked, the learner merely waits for experience.
    """
    present = [actor for actor in actors if actor.state not in ("Lost", "Finished")]
    if waited_seconds < STANDSTILL_SECONDS or not present or any(actor.state != "Blocked" for actor in present):
        return ""
    causes = "; ".join(f"replay-{shard.index} {_cause(shard)}" for shard in shards)
    count = len(present)
    blocked = f"all {count} actors wait" if count > 1 else "the one actor waits"
    # No figure here moves while nothing else does, so that the sentence is logged once.
    return (
        f"the learner has waited more than {STANDSTILL_SECONDS:.0f} s for a batch while {blocked} to insert: {causes}"
    )


def _cause(shard: ShardView) -> str:
    status = shard.status
    if status is None or (shard.quiet and not shard.subscribed):
        return "does not answer the learner"
    if shard.quiet:
        return "is silent"
    if not shard.subscribed:
        return "has not accepted the learner's subscription"
    limiter = status.limiter or LimiterStatus()
    if status.state != "serving":
        return f"is {status.state} with {status.items} transitions"
    side = {"inserts": "blocks inserts", "samples": "waits for inserts"}.get(limiter.blocked, "limits neither side")
    return f"{side}, {limiter.error or 0.0:+,.0f} samples from its ratio (errorBuffer {limiter.buffer or 0.0:,.0f})"
