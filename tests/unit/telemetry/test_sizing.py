"""What a job needs, and what its next unit brings and saves, redone by hand."""

import pytest
from rljob.api import load_manifest, parse_job
from rljob.api.load import read_manifest
from rljob.telemetry.sizing import (
    NUMBERS,
    crowded,
    lines,
    next_units,
    sentence,
    sizing,
    with_requests,
)

from tests.support.paths import EXAMPLES

MIB = 1 << 20
PONG: dict[str, float] = {
    "cores": 2, "actor_seconds": 1e-3, "env_seconds": 6e-4, "acting_seconds": 3e-4, "actor_cores": 0.9,
    "update_seconds": 0.02, "updates_per_step": 0.01, "learner_seconds": 2.5e-4, "learner_cores": 2.0,
    "replay_seconds": 6e-6, "drawing_seconds": 4e-6, "replay_cores": 3.0, "overlap": 64.0, "step_bytes": 130,
    "inference_seconds": 0.0, "inference_cores": 0.0, "judging_seconds": 8e-4, "inference_memory_bytes": 0,
    "evaluator_memory_bytes": 250 * MIB,
    "weights_bytes_per_update": 1000,
    "stored_bytes": 140, "mirror_bytes": 2000, "stored_transitions": 5000, "actor_memory_bytes": 300 * MIB,
    "learner_memory_bytes": 600 * MIB, "replay_memory_bytes": 100 * MIB, "redis_memory_bytes": 50 * MIB,
    "redis_start_memory_bytes": 30 * MIB, "redis_probe_memory_bytes": 14 * MIB,
}  # fmt: skip


def test_numbers_by_hand() -> None:
    assert set(PONG) == set(NUMBERS)
    job = load_manifest(EXAMPLES / "pong-apex.yaml", ["spec.replay.capacity=1000000", "spec.replay.shards=2"])
    found = sizing(job, PONG)
    rate, roles = found["steps_per_second"], found["roles"]
    assert (found["knee"], found["actors"]) == (pytest.approx(4), 4)
    assert rate == pytest.approx(4000, rel=0.02)
    bytes_there = [found[f"{name}_bytes"] for name in ("network_in", "network_out", "replay")]
    assert bytes_there == pytest.approx([130 * rate, 4 * 1000 * 0.01 * rate, 140 * 1_000_000])
    needs = {
        "actors": (4, 0.9, 300 * MIB),
        "learner": (1, 2.0, 600 * MIB + 995_000 * 2000),
        "replay": (2, pytest.approx(3.0 * (4e-6 + 6e-6 / 2) * rate), 100 * MIB + 495_000 * 140),
        "evaluator": (1, 1.0, 3 * 250 * MIB),  # two by its preset
    }
    assert {name: tuple(roles[name][each] for each in ("members", "cores", "memory_bytes")) for name in needs} == needs
    assert roles["replay.redis"]["memory_bytes"] == (50 + 14) * MIB + 495_000 * 140
    # On the two cores of the calibration one actor is held to what all roles compute together.
    assert found["here_steps_per_second"] == pytest.approx(min(1000, 2 / (9e-4 + 5e-4 + 3e-5)), rel=0.02)
    adds = {actors: more for actors, _, more in found["rows"]}
    assert (adds[1], adds[5]) == (pytest.approx(1.0, abs=0.02), pytest.approx(0.0, abs=0.01))


def test_a_redis_with_little_data_needs_the_most_while_it_starts() -> None:
    """A job of 10 MiB ended there, killed in the second in which Python becomes the server."""
    job = load_manifest(EXAMPLES / "cartpole-apex.yaml", ["spec.replay.capacity=5000", "spec.replay.shards=1"])
    found = sizing(job, PONG | {"redis_memory_bytes": 9 * MIB})
    assert found["roles"]["replay.redis"]["memory_bytes"] == (30 + 14) * MIB


def test_a_limit_in_bytes_counts_and_a_redis_elsewhere_does_not() -> None:
    overrides = ["spec.replay.capacity=1000000", "spec.replay.capacityBytes=70M"]
    shorter = sizing(load_manifest(EXAMPLES / "pong-apex.yaml", overrides), PONG)
    assert shorter["replay_bytes"] == pytest.approx(70e6)
    overrides.append("spec.replay.redis.external.url=redis://log:6379")
    elsewhere = sizing(load_manifest(EXAMPLES / "pong-apex.yaml", overrides), PONG)
    assert set(shorter["roles"]) - set(elsewhere["roles"]) == {"replay.redis"}


def test_a_job_without_replay_has_none() -> None:
    found = sizing(
        load_manifest(EXAMPLES / "pong-vtrace.yaml"),
        PONG | {"replay_seconds": 0.0, "drawing_seconds": 0.0, "redis_memory_bytes": 0.0},
    )
    assert (set(found["roles"]), found["replay_bytes"]) == ({"actors", "learner", "evaluator"}, 0)


def test_inference_servers_are_a_part_and_a_role() -> None:
    """A server that answers all takes a millisecond a step, two half as much each: actors of 1e-3 s need two for them."""
    served = PONG | {"inference_seconds": 1e-3, "inference_cores": 1.5, "inference_memory_bytes": 200 * MIB}
    two = ["spec.actors.inference=Central", "spec.inference.replicas=2"]
    found = sizing(load_manifest(EXAMPLES / "pong-apex.yaml", two), served)
    assert (found["knee"], found["steps_per_second"]) == (pytest.approx(2), pytest.approx(2000, rel=0.02))
    needs = found["roles"]["inference"]
    assert needs == {"members": 2, "cores": pytest.approx(1.5, rel=0.02), "memory_bytes": 200 * MIB}
    # In the learner it is no role, and holds the actors up as much as one.
    within = sizing(load_manifest(EXAMPLES / "pong-apex.yaml", two[:1]), served)
    assert ("inference" in within["roles"], within["knee"]) == (False, pytest.approx(1))


def test_an_evaluator_has_a_process_for_each_core_of_its_limit_and_one_that_forks_them() -> None:
    resources = "spec.evaluator.resources={requests: {cpu: 500m}, limits: {cpu: 3}}"
    roles = sizing(load_manifest(EXAMPLES / "pong-apex.yaml", [resources]), PONG)["roles"]
    assert roles["evaluator"] == {"members": 1, "cores": 0.5, "memory_bytes": 1000 * MIB}
    without = sizing(load_manifest(EXAMPLES / "pong-apex.yaml", ["spec.evaluator.enabled=false"]), PONG)["roles"]
    assert "evaluator" not in without


def test_requests_are_filled_in_beside_what_is_written() -> None:
    written = read_manifest(EXAMPLES / "cartpole-apex.yaml", ["spec.learner.resources.limits.memory=8Gi"])
    sized = with_requests(written, sizing(parse_job(written), PONG)["roles"])
    spec = sized["spec"]
    assert (spec["preset"], spec["learner"]["resources"]["limits"]) == ("CartPoleApeX", {"memory": "8Gi"})
    assert spec["actors"]["resources"]["requests"] == {"cpu": "900m", "memory": "300Mi"}
    assert set(spec["replay"]["redis"]["resources"]["requests"]) == {"memory"}
    assert "resources" not in written["spec"].get("actors", {})
    assert parse_job(sized).spec.actors.resources.requests["cpu"] == "900m"


# What the next unit brings and saves, redone by hand.

FIGURES = {
    "steps_per_second": 1000.0,
    "actors_running": 2.0,
    "learner_wait_fraction": 0.5,
    "actors_blocked_fraction": 0.0,
    "processes/learner/cpu_cores": 0.5,
    "processes/replay/cpu_cores": 0.2,
    "processes/actor/cpu_cores": 1.8,
    "stage/replay/idle": 0.9,
    "stage/replay/insert": 0.1,
}
SPEC = load_manifest(
    EXAMPLES / "pong-apex.yaml",
    [
        "spec.evaluator.enabled=false",
        "spec.successPolicy.targetReturn=",
        "spec.successPolicy.rawFrames=1000000",
        "spec.evaluator.triggerReturn=",
    ],
).spec


def test_an_actor_more_by_hand() -> None:
    found = next_units(FIGURES, SPEC, seconds_left=300)
    actor = next(unit for unit in found.units if "actor" in unit.name)
    assert (actor.steps_per_second, actor.seconds_saved, found.knee) == pytest.approx((1500, 100, 4.0), rel=0.015)
    assert "s sooner" in "\n".join(lines(found))
    assert "knee of one more actor is at 4.0" in sentence(found)


def test_without_a_known_end_nothing_is_said_of_it() -> None:
    assert {unit.seconds_saved for unit in next_units(FIGURES, SPEC).units} == {None}
    assert next_units({}, SPEC) is None


def test_on_a_machine_whose_cores_are_taken_an_actor_needs_one_more() -> None:
    shares = {unit.name: unit.share for unit in next_units(FIGURES, SPEC, cores=2.5).units}
    assert shares["an actor on the cores there are"] == pytest.approx(0, abs=0.01)
    assert shares["an actor on a core of its own"] > 0.3


@pytest.mark.parametrize(("waited", "told"), [(0.9, ""), (1.9, "take 1.9 of this machine's 2, ")])
def test_nothing_is_promised_where_other_processes_have_the_cores(waited: float, told: str) -> None:
    mine = {"processes/learner/cpu_cores": 0.02, "processes/replay/cpu_cores": 0.0, "processes/actor/cpu_cores": 0.03}
    figures = {**FIGURES, **mine, "processes/actor/core_wait_cores": waited}
    assert told in crowded(figures, 2.0)
    assert (next_units(figures, SPEC, cores=2.0) is None) == bool(told)
    # Each role may have a machine of its own.
    assert (crowded(figures, None), crowded({}, 2.0)) == ("", "")
