"""What each part of a run could make by itself, and so what all of them make with one more of any. Pure.

A part that waits half of its time could make twice as much: the seconds of its work that a step costs are the share of time in
which it did not wait, divided by the steps a second. Parts that never wait for each other would make as much as the slowest of
them; parts that take turns need the sum of their seconds. What a run does lies between the two, and its own shares of time
tell where: with the share u of time that each part was at work, it is the exponent p for which the sum of all u**p is 1. p = 1
is taking turns, a large p a queue that keeps all of them at work. A step then takes (sum of seconds**p) ** (1/p).

Seconds in which a role was ready to run and had no core are not its work; the kernel counts them. What all roles compute, divided
by the cores that they share, is the other bound, where they share a machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rljob.telemetry.bottleneck import busy_share, known_share
from rljob.telemetry.figures import numbers_in

SLOWEST_ALONE: Final = 64.0
"""The exponent from which on the slowest part alone counts: two equal parts then make 1 % less than one of them."""
_HALVINGS: Final = 40
_LEAST_RATE: Final = 1e-9
"""Steps a second below which nothing happens."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Seconds of work that an agent step costs each part while it has a core: an actor, the learner, a replay shard if there were
    only one, an inference server, and the way between them. ``drawing_seconds`` are a shard's for batches, and not among its
    others: each batch is asked of every shard, so that a further one is taken to save none of them.

    ``overlap``: the exponent p. ``cpu_seconds``: of all cores together, of which ``cpu_actor_seconds`` are the actors'.
    ``cores``: that the roles share and can have now; None where each has its own.
    """

    actor_seconds: float
    learner_seconds: float
    replay_seconds: float = 0.0
    drawing_seconds: float = 0.0
    serving_seconds: float = 0.0
    way_seconds: float = 0.0
    overlap: float = SLOWEST_ALONE
    cpu_seconds: float = 0.0
    cores: float | None = None

    def steps_per_second(
        self,
        actors: float,
        shards: float = 1.0,
        *,
        ways: float = 1.0,
        learners: float = 1.0,
        further_cores: float = 0.0,
    ) -> float:
        """Agent steps a second of so many actors and shards, on a way and a learner so many times as fast."""
        parts = (
            self.actor_seconds / actors,
            self.learner_seconds / learners,
            self.shard_seconds(shards),
            self.serving_seconds,
            self.way_seconds / ways,
        )
        longest = max(parts)
        together: float = longest * sum((part / longest) ** self.overlap for part in parts) ** (1 / self.overlap)
        computing = 0.0 if self.cores is None else self.cpu_seconds / (self.cores + further_cores)
        return 1 / max(together, computing)

    def shard_seconds(self, shards: float) -> float:
        """What a step costs each of so many shards."""
        return self.drawing_seconds + self.replay_seconds / shards

    def knee(self, shards: float = 1.0) -> float:
        """Actors with which they make as much as the slowest of the other parts. Up to there one more brings about its own rate,
        from there on hardly anything."""
        others = self.learner_seconds, self.shard_seconds(shards), self.serving_seconds, self.way_seconds
        return self.actor_seconds / max(others)


def pipeline(figures: Mapping[str, float], *, shards: int = 1, cores: float | None = None) -> Pipeline | None:
    """The parts of a run from its flat figures (`rljob.telemetry.figures`), one record's or their means; None where they do not
    tell the shares of time, or nothing was learned. ``cores``: of the one machine that the roles share."""
    known = numbers_in(figures)
    rate, actors = known.get("steps_per_second", 0.0), known.get("actors_running", 0.0)
    wait = known_share(known, "learner_wait_fraction", "stage/learner/wait")
    held = known_share(known, "actors_blocked_fraction", "stage/actor/blocked")
    if rate < _LEAST_RATE or actors < 1 or wait is None or held is None or wait >= 1 or held >= 1:
        return None
    at_work = {
        "actor": 1 - held,
        "learner": 1 - wait,
        **{role: busy_share(known, role) for role in ("replay", "inference")},
    }
    way = _on_the_way(known) if cores is None else 0.0
    overlap, rest = _overlap((*at_work.values(), way))
    taken, wanted = (sum(of(known, role) for role in at_work) for of in (computed, _waited))
    shard = with_a_core(known, "replay", shards * at_work["replay"]) / shards / rate
    drawing = min(1.0, known.get("stage/replay/sample", 0.0) / max(at_work["replay"], _LEAST_RATE))
    return Pipeline(
        actor_seconds=with_a_core(known, "actor", actors * at_work["actor"]) / rate,
        learner_seconds=with_a_core(known, "learner", at_work["learner"]) / rate,
        replay_seconds=shards * shard * (1 - drawing),
        drawing_seconds=shard * drawing,
        serving_seconds=with_a_core(known, "inference", at_work["inference"]) / rate,
        way_seconds=(way + rest) / rate,
        overlap=overlap,
        cpu_seconds=taken / rate,
        cores=None if cores is None or not taken else taken + max(0.0, cores - taken - wanted),
    )


def _overlap(at_work: tuple[float, ...]) -> tuple[float, float]:
    """The exponent p, and the share of time in which none of them was at work while they took turns."""
    if sum(at_work) <= 1:
        return 1.0, 1 - sum(at_work)
    low, high = 1.0, SLOWEST_ALONE
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(u**middle for u in at_work) > 1 else (low, middle)
    return high, 0.0


def _on_the_way(known: Mapping[str, float]) -> float:
    """Share of time in which the actors' messages were under way: as many as are in a link on average, by what their sockets hold
    that did not arrive; with one or more it is never free. Between roles of one machine there is no link to be faster."""
    size = known.get("processes/actor/message_bytes", 0.0) / max(1.0, known.get("actors_running", 1.0))
    return min(1.0, max(0.0, known.get("processes/actor/send_queue_bytes", 0.0)) / size) if size > 0 else 0.0


def computed(known: Mapping[str, float], role: str) -> float:
    """Cores that a role took."""
    return max(0.0, known.get(f"processes/{role}/cpu_cores", 0.0))


def _waited(known: Mapping[str, float], role: str) -> float:
    """Cores that it would have taken more."""
    return max(0.0, known.get(f"processes/{role}/core_wait_cores", 0.0))


def with_a_core(known: Mapping[str, float], role: str, at_work: float) -> float:
    """Seconds of work a second, of all members of a role, without those in which they had no core. Several threads may have
    waited at once: never a larger share is taken away than that of waiting in all the time in which they wanted a core."""
    taken, waited = computed(known, role), _waited(known, role)
    return at_work - min(waited, at_work * waited / (taken + waited)) if taken else at_work
