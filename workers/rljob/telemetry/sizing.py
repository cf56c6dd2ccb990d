"""What a job needs, from what its parts were measured to take: cores, memory, network, replay, and how many actors. Pure.

Every number that comes out was measured, stands in the manifest, or is computed from the two.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.plain import plain
from rljob.api.types import quantity
from rljob.telemetry.pipeline import Pipeline

Measured = Mapping[str, float]
"""The numbers of a calibration, by the names of `NUMBERS`."""
NUMBERS: Final[Mapping[str, str]] = {
    "cores": "of the machine on which this was measured",
    "actor_seconds": "work of an actor, an agent step, while it has a core",
    "env_seconds": "the environment's part of that",
    "acting_seconds": "the part of choosing actions",
    "actor_cores": "that an actor takes while it works",
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
