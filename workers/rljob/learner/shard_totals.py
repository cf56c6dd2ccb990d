"""What the replay shards report, added up: pure functions on their statuses.

A shard that is gone leaves only totals, games and actors (``ShardStatus.gone``), so that sums hold what is there now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from rljob.api.episode_metrics import means
from rljob.api.learner_status import ReplaySummary
from rljob.ingest.shard_status import ActorStatus, Episode, ShardStatus
from rljob.telemetry.flat_figures import GAMES_TO_GO_BY

GAMES_IN_MEAN = 20
_STATES = ("warming", "filling", "serving")


def least_state(shards: Sequence[ShardStatus]) -> str:
    """The least advanced state of all shards that are up: warming, filling or serving."""
    order = {state: rank for rank, state in enumerate(_STATES)}
    return min((shard.state for shard in shards if shard.state), key=lambda s: order.get(s, 0), default="warming")


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
        state=least_state(shards),
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
