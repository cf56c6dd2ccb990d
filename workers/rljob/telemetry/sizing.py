"""How a job's parts keep each other waiting, what that makes a job need, and what one more unit of each would buy. Pure.

Every number that comes out was measured, stands in the manifest, or is computed from these.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.job import RLJobSpec
from rljob.api.problems import plain
from rljob.api.types import quantity
from rljob.telemetry.bottleneck import busy_share, known_share
from rljob.telemetry.flat_figures import numbers_in

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

    A part that waits half of its time could make twice as much: the seconds of its work that a step costs are the share of time
    in which it did not wait, divided by the steps a second. Parts that never wait for each other would make as much as the
    slowest of them; parts that take turns need the sum of their seconds. What a run does lies between the two, and its own
    shares of time tell where: with the share u of time that each part was at work, it is the exponent p for which the sum of all
    u**p is 1. p = 1 is taking turns, a large p a queue that keeps all of them at work. A step then takes
    (sum of seconds**p) ** (1/p). Seconds in which a role was ready to run and had no core are not its work; the kernel counts
    them. What all roles compute, divided by the cores that they share, is the other bound, where they share a machine.

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
    """The parts of a run from its flat figures (`rljob.telemetry.flat_figures`), one record's or their means; None where they do
    not tell the shares of time, or nothing was learned. ``cores``: of the one machine that the roles share."""
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


Measured = Mapping[str, float]
"""The numbers of a calibration, by the names of `NUMBERS`."""
NUMBERS: Final[Mapping[str, str]] = {
    "cores": "of the measured machine",
    "actor_seconds": "work of an actor, an agent step, while it has a core",
    "env_seconds": "the environment's part of that",
    "acting_seconds": "the part of choosing actions",
    "actor_cores": "cores of a working actor",
    "update_seconds": "work of the learner, an update",
    "updates_per_step": "updates for each agent step",
    "learner_seconds": "work of the learner, an agent step: updates, publishing and all else",
    "learner_cores": "that it takes while it works",
    "replay_seconds": "work of a shard that takes in all, an agent step, but for its draws; 0 without replay",
    "drawing_seconds": "work of each shard for the batches that are drawn from all of them, an agent step",
    "replay_cores": "that it takes while it works, with its Redis",
    "inference_seconds": "work of an inference server that answers all, an agent step; 0 where actors compute",
    "inference_cores": "that one of its own takes while it works; 0 without",
    "judging_seconds": "work of a process of the evaluator, a step of a game; 0 without an evaluator",
    "overlap": "how far actors and learner work at the same time: 1, they take turns; 64, the slower never waits",
    "step_bytes": "an agent step, as packed by an actor",
    "weights_bytes_per_update": "of weights that one actor fetches",
    "stored_bytes": "a transition in the replay service, and again in its log",
    "mirror_bytes": "a transition in the learner's mirror, by its shapes",
    "stored_transitions": "that the replay had when memory was measured",
    "actor_memory_bytes": "resident, with the processes of its environments",
    "learner_memory_bytes": "resident",
    "replay_memory_bytes": "resident",
    "redis_memory_bytes": "resident; 0 without a log here",
    "redis_start_memory_bytes": "resident, of the process that becomes that Redis in a pod",
    "redis_probe_memory_bytes": "resident, of the probe that asks there whether it has read its data",
    "inference_memory_bytes": "resident, of a server of its own",
    "evaluator_memory_bytes": "resident, of one of its processes",
}
POSITIVE: Final = ("cores", "actor_seconds", "learner_seconds")
_MIB: Final = 1 << 20


def parts(measured: Measured, cores: float | None = None, servers: int = 1) -> Pipeline:
    """The parts of the job, with so many inference servers; ``cores`` that all of them share, None where each has its own."""
    actor, learner, replay, drawing = (measured[f"{of}_seconds"] for of in ("actor", "learner", "replay", "drawing"))
    serving = measured["inference_seconds"]
    working = {"actor": actor, "learner": learner, "replay": replay + drawing, "inference": serving}
    return Pipeline(
        actor,
        learner,
        replay,
        drawing,
        serving / servers,
        overlap=measured["overlap"],
        cpu_seconds=sum(taken * measured[f"{role}_cores"] for role, taken in working.items()),
        cores=cores,
    )


def sizing(job: RLJob, measured: Measured) -> dict[str, Any]:
    """What ``job`` needs, as plain values.

    ``knee``: actors that make as much as the rest takes; ``actors``: that many, rounded up, for which all further numbers are.
    ``here_steps_per_second``: of the job as written on the cores of the calibration. ``rows``: of so many actors, steps a second
    and the share that one more adds. Network: bytes a second of the learner's node. ``replay_bytes``: of all shards' services,
    whose logs hold as much again. ``roles``: members, cores and memory of each, by its path in the manifest.
    """
    spec, servers = job.spec, inference_servers(job)
    alone = parts(measured, servers=max(1, servers))
    replay = spec.replay.resolved() if spec.replay is not None else None
    shards, capacity = (replay.shards, replay.capacity) if replay is not None else (1, 0)
    if replay is not None and replay.capacity_bytes and measured["stored_bytes"]:
        capacity = min(capacity, int(replay.capacity_bytes / measured["stored_bytes"]))
    actors = max(1, math.ceil(alone.knee(shards)))
    rate = alone.steps_per_second(actors, shards)
    updates = rate * measured["updates_per_step"]
    missing = [max(0.0, capacity / split - measured["stored_transitions"]) for split in (1, shards)]
    mirror, stored = missing[0] * measured["mirror_bytes"], missing[1] * measured["stored_bytes"]
    roles = {
        "actors": (actors, measured["actor_cores"], measured["actor_memory_bytes"]),
        "learner": (1, measured["learner_cores"], measured["learner_memory_bytes"] + mirror),
    }
    if replay is not None:
        cores = measured["replay_cores"] * alone.shard_seconds(shards) * rate
        roles["replay"] = (shards, cores, measured["replay_memory_bytes"] + stored)
    if measured["redis_memory_bytes"] and spec.required_replay.redis.external is None:
        serving, starting = measured["redis_memory_bytes"] + stored, measured["redis_start_memory_bytes"]
        roles["replay.redis"] = (shards, 0.0, max(serving, starting) + measured["redis_probe_memory_bytes"])
    if servers:
        cores = measured["inference_cores"] * alone.serving_seconds * rate
        roles["inference"] = (servers, cores, measured["inference_memory_bytes"])
    if spec.evaluator.enabled:
        judges = spec.evaluator.resources
        asked = float(quantity(judges.requests.get("cpu", str(judges.cores()))))  # how fast it is to judge is no need
        processes = judges.cores() + (judges.cores() > 1)  # several are forked from one more
        roles["evaluator"] = (1, asked, processes * measured["evaluator_memory_bytes"])
    return {
        "knee": alone.knee(shards),
        "actors": actors,
        "steps_per_second": rate,
        "updates_per_second": updates,
        "here_steps_per_second": parts(measured, measured["cores"], max(1, servers)).steps_per_second(
            max(1, spec.requested_actors), shards
        ),
        "rows": list(_rows(alone, actors, shards)),
        "network_in_bytes": rate * measured["step_bytes"],
        "network_out_bytes": updates * measured["weights_bytes_per_update"] * actors,
        "replay_bytes": capacity * measured["stored_bytes"],
        "roles": {
            role: dict(zip(("members", "cores", "memory_bytes"), needs, strict=True)) for role, needs in roles.items()
        },
    }


def inference_servers(job: RLJob) -> int:
    """Servers of their own; 0 where actors compute their own actions, or the learner does for them."""
    return job.spec.inference.replicas if job.spec.actors.inference == "Central" else 0


def _rows(alone: Pipeline, feeding: int, shards: int) -> Iterator[tuple[int, float, float]]:
    """Rows for 1, 2, 4, ... actors up to those that feed the learner, the numbers beside that, and twice as many."""
    doubled = (1 << power for power in range(feeding.bit_length()))
    for count in sorted({*doubled, max(1, feeding - 1), feeding, feeding + 1, 2 * feeding}):
        now, more = (alone.steps_per_second(number, shards) for number in (count, count + 1))
        yield count, now, more / now - 1


def requests(needs: Mapping[str, float]) -> dict[str, str]:
    """What a role needs as ``resources.requests``, rounded up; no CPU where that is in another role's."""
    cpu = {"cpu": f"{math.ceil(1000 * needs['cores'])}m"} if needs["cores"] else {}
    return {**cpu, "memory": f"{math.ceil(needs['memory_bytes'] / _MIB)}Mi"}


def with_requests(written: Mapping[str, Any], roles: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """A copy of a manifest with ``resources.requests`` of these roles filled in; what else stands there is kept."""
    sized: dict[str, Any] = plain(written)
    for role, needs in roles.items():
        node = sized["spec"]
        for name in (*role.split("."), "resources", "requests"):
            node[name] = node.get(name) or {}
            node = node[name]
        node.update(requests(needs))
    return sized


_LEAST_SHARE: Final = 0.5
"""A share of a machine's cores. With less than that, a core more is several times what the run has, and nothing says that it
would get it rather than the others."""


@dataclass(frozen=True, slots=True)
class NextUnit:
    """One thing more.

    ``share``: what it adds to the steps a second, of what there is now. ``seconds_saved``: of those that are left, where that is
    known.
    """

    name: str
    steps_per_second: float
    share: float
    seconds_saved: float | None = None


@dataclass(frozen=True, slots=True)
class NextUnits:
    """All of them; ``steps_per_second`` as it is. ``curve``: (actors, steps a second)."""

    steps_per_second: float
    actors: int
    knee: float
    curve: tuple[tuple[int, float], ...]
    units: tuple[NextUnit, ...]


def next_units(
    figures: Mapping[str, float],
    spec: RLJobSpec | None,
    *,
    cores: float | None = None,
    seconds_left: float | None = None,
) -> NextUnits | None:
    """What one more of each would bring to a run with these flat figures; None before they tell, and where the run is `crowded`.
    ``cores``: of the one machine that all roles share, None where each has its own. Rates are in proportion to what was
    measured."""
    shards = spec.replay.shards if spec is not None and spec.replay is not None else 1
    parts = pipeline(figures, shards=shards, cores=cores)
    if parts is None or crowded(figures, cores):
        return None
    actors, rate = max(1, round(figures["actors_running"])), figures["steps_per_second"]
    scale = rate / parts.steps_per_second(actors, shards)
    found = []
    for name, further in _units(parts, actors, shards, spec, figures):
        share = scale * further / rate - 1
        saved = None if seconds_left is None else seconds_left * (1 - 1 / (1 + share))
        found.append(NextUnit(name, scale * further, share, saved))
    most = max(2 * actors, round(2 * parts.knee(shards)), 4)
    counts = sorted({*(1 + round(step * (most - 1) / 40) for step in range(41)), actors})
    return NextUnits(
        rate,
        actors,
        parts.knee(shards),
        tuple((count, scale * _with_cores(parts, count, actors, shards)) for count in counts),
        tuple(found),
    )


def crowded(figures: Mapping[str, float], cores: float | None) -> str:
    """That other processes have most of the cores which the roles would share, in words; empty where they do not."""
    parts = pipeline(figures, cores=cores)
    if cores is None or parts is None or parts.cores is None or parts.cores >= _LEAST_SHARE * cores:
        return ""
    return (
        f"the run waits for cores: processes beside its actors, learner and replay take {cores - parts.cores:.1f} of this "
        f"machine's {cores:g}, and until they stop rljob can't tell what one more of anything would add"
    )


def _with_cores(parts: Pipeline, count: int, actors: int, shards: int) -> float:
    """With so many actors, each further one on a core of its own."""
    return parts.steps_per_second(count, shards, further_cores=max(0, count - actors))


def _units(
    parts: Pipeline, actors: int, shards: int, spec: RLJobSpec | None, figures: Mapping[str, float]
) -> Iterator[tuple[str, float]]:
    """(name, steps a second with it)."""
    yield "an actor on a core of its own", _with_cores(parts, actors + 1, actors, shards)
    if parts.cores is not None:
        yield "an actor on the cores there are", parts.steps_per_second(actors + 1, shards)
        yield "a core more for what runs", parts.steps_per_second(actors, shards, further_cores=1)
    if parts.shard_seconds(1) and spec is not None and spec.replay is not None:
        asked = spec.replay.resources.requests.get("cpu")
        shard = quantity(asked) if asked else figures.get("processes/replay/cpu_cores", 0.0) / shards
        yield "a replay shard", parts.steps_per_second(actors, shards + 1, further_cores=shard)
    if parts.cores is None:
        yield "a network twice as fast", parts.steps_per_second(actors, shards, ways=2)
    yield "a learner twice as fast", parts.steps_per_second(actors, shards, learners=2)


def sentence(found: NextUnits) -> str:
    """The best of them in a sentence, for a status."""
    best = max(found.units, key=lambda unit: unit.share)
    return (
        f"{best.name} would add {100 * best.share:.0f} % to {found.steps_per_second:,.0f} steps/s; "
        f"the knee of one more actor is at {found.knee:.1f} of them, {found.actors} play"
    )


def lines(found: NextUnits) -> Iterator[str]:
    """All of them as a table in plain text."""
    yield f"What the next unit would bring to {found.steps_per_second:,.0f} steps/s:"
    for unit in found.units:
        saved = "" if unit.seconds_saved is None else f"  {unit.seconds_saved:,.0f} s sooner"
        yield f"  {unit.name:<32} {unit.steps_per_second:>9,.0f} steps/s  {100 * unit.share:>+6.1f} %{saved}"
    yield f"The knee of one more actor is at {found.knee:.1f} actors; {found.actors} play now."
