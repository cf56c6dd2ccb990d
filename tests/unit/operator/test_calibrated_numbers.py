"""From the figures of a run to the numbers of a calibration, redone by hand. Real runs are in
``tests/integration/operator/test_calibration.py``."""

from typing import Any

import pytest
from rljob.api import EnvironmentParameters, load_manifest, parse_job
from rljob.api.load import read_manifest, written_job
from rljob.envs import EnvironmentSpec, describe_environment
from rljob.errors import UsageError
from rljob.telemetry.sizing import NUMBERS, parts
from rljob_operator.local.calibration import _overrides, measured

from tests.support.paths import EXAMPLES

JOB = load_manifest(EXAMPLES / "cartpole-apex.yaml")
"""Batches of 128, 8 samples an insert: 1/16 update a step. Chunks of 20 steps, 3-step returns."""
MIB = 1 << 20
FIGURES = {
    "steps_per_second": 1000.0, "updates_per_second": 50.0, "actors_running": 1.0,
    "stage/actor/env": 0.3, "stage/actor/infer": 0.15, "stage/actor/encode": 0.05, "stage/actor/blocked": 0.5,
    "stage/learner/wait": 0.75, "stage/learner/update": 0.2, "stage/learner/other": 0.05,
    "stage/replay/idle": 0.9, "stage/replay/insert": 0.06, "stage/replay/sample": 0.04,
    "processes/actor/cpu_cores": 0.5, "processes/learner/cpu_cores": 0.25, "processes/replay/cpu_cores": 0.2,
}  # fmt: skip
"""The actor is at work for a half, the learner for a quarter of its time."""
TOLD: dict[str, dict[str, Any]] = {
    "actor-0": {"produced": 990, "bytes_encoded": 9900},
    "learner": {
        "updates": 50,
        "weights": {"sent_bytes_total": 5000},
        "replay": {"items": 5000, "bytes": 150_000},
    },
}
MEMORY = {"actor-0": (290.0 * MIB, 10.0 * MIB), "learner": (400.0 * MIB, 0.0), "replay-0": (200.0 * MIB, 8.0 * MIB)}
MEMORY["redis-start"] = 30.0 * MIB, 14.0 * MIB


@pytest.fixture(scope="module")
def cartpole() -> EnvironmentSpec:
    return describe_environment("CartPole-v1", EnvironmentParameters())


def test_numbers_of_work_and_bytes(cartpole: EnvironmentSpec) -> None:
    found = measured(JOB, cartpole, FIGURES, TOLD, MEMORY)
    assert set(found) == set(NUMBERS)
    expected = {
        "actor_seconds": 0.5e-3,
        "env_seconds": 0.3e-3,
        "acting_seconds": 0.15e-3,
        "actor_cores": 1.0,
        # It made 1/20 update a step so far; the limiter will have it make 1/16.
        "updates_per_step": 1 / 16,
        "update_seconds": 0.2 / 50,
        "learner_seconds": 0.25 / 50 / 16,
        "learner_cores": 1.0,
        "replay_seconds": 0.06e-3,
        "drawing_seconds": 0.04e-3,
        "replay_cores": 2.0,
        "step_bytes": 10,
        "weights_bytes_per_update": 100,
        "stored_bytes": 30,
        "stored_transitions": 5000,
        "actor_memory_bytes": 300 * MIB,
        "replay_memory_bytes": 200 * MIB,
        "redis_memory_bytes": 8 * MIB,
        "redis_start_memory_bytes": 30 * MIB,
        "redis_probe_memory_bytes": 14 * MIB,
        # 0.5 and 0.25 and 0.1 of the time at work: less than one of them at a time, so they take turns.
        "overlap": 1.0,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    # Four floats a row, 22 or 23 rows a chunk of 20; a transition's other columns are beside them.
    assert 16 * 22 / 20 < found["mirror_bytes"] < 16 * 23 / 20 + 40


def test_time_without_a_core_is_taken_out(cartpole: EnvironmentSpec) -> None:
    """As much as they computed: half of the actor's and of the learner's time at work was none."""
    waits = {"processes/actor/core_wait_cores": 0.5, "processes/learner/core_wait_cores": 0.25}
    found = measured(JOB, cartpole, FIGURES | waits, TOLD, MEMORY)
    expected = {
        "actor_seconds": 0.25e-3,
        "env_seconds": 0.15e-3,
        "actor_cores": 2.0,
        "learner_seconds": 0.25 / 50 / 16 / 2,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_nothing_learned_is_said(cartpole: EnvironmentSpec) -> None:
    for missing in ("steps_per_second", "updates_per_second"):
        with pytest.raises(UsageError, match="nothing was learned"):
            measured(JOB, cartpole, FIGURES | {missing: 0.0}, TOLD, MEMORY)


def test_a_job_without_replay_has_no_shard(cartpole: EnvironmentSpec) -> None:
    figures = {name: value for name, value in FIGURES.items() if "replay" not in name}
    told = TOLD | {"learner": {"updates": 50, "weights": {"sent_bytes_total": 5000}}}
    memory = {name: sizes for name, sizes in MEMORY.items() if name.startswith(("actor", "learner"))}
    found = measured(load_manifest(EXAMPLES / "cartpole-ppo.yaml"), cartpole, figures, told, memory)
    assert [found[name] for name in ("replay_seconds", "stored_bytes", "mirror_bytes", "redis_memory_bytes")] == [0] * 4
    assert (found["updates_per_step"], parts(found).knee()) == pytest.approx((1 / 20, 2.0))


def test_an_inference_server_and_an_evaluator_are_measured_beside_it(cartpole: EnvironmentSpec) -> None:
    """The server is at work for a fifth of 1,000 steps a second, with two threads; the evaluator for 0.9 of a second in which it
    judged 300 steps, and had no core for a third of that."""
    figures = FIGURES | {
        "stage/inference/wait": 0.8, "stage/inference/evaluate": 0.15, "stage/inference/answer": 0.05,
        "processes/inference/cpu_cores": 0.4, "processes/inference/core_wait_cores": 0.0,
        "stage/evaluator/wait": 0.1, "stage/evaluator/play": 0.9, "judged_steps_per_second": 300.0,
        "processes/evaluator/cpu_cores": 0.6, "processes/evaluator/core_wait_cores": 0.3,
    }  # fmt: skip
    memory = MEMORY | {"inference-0": (200.0 * MIB, 0.0), "evaluator": (240.0 * MIB, 10.0 * MIB)}
    found = measured(JOB, cartpole, figures, TOLD, memory)
    expected = {
        "inference_seconds": 0.2e-3,
        "inference_cores": 2.0,
        "judging_seconds": 0.6 / 300,
        "inference_memory_bytes": 200 * MIB,
        "evaluator_memory_bytes": 250 * MIB,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert parts(found, servers=2).serving_seconds == pytest.approx(0.1e-3)


def shortened(example: str, *sets: str) -> Any:
    written = read_manifest(EXAMPLES / example, sets)
    short = written_job(written, _overrides(parse_job(written)))
    short["spec"].setdefault("evaluator", {})["enabled"] = True
    return parse_job(short).spec


def test_a_preset_ends_no_calibration_and_delays_no_evaluator() -> None:
    spec = shortened("pong-central.yaml", "spec.inference.replicas=3")
    assert (spec.evaluator.trigger_return, spec.success_policy.target_return) == (None, None)
    assert (spec.evaluator.resources.cores(), spec.inference.replicas) == (1, 1)


def test_no_rule_that_ends_a_job_ends_its_calibration() -> None:
    rules = (
        "plateau={}",
        "trainingReturn={windowRawFrames: 9}",
        "valueLoss={windowRawFrames: 9}",
        "onNonFiniteLoss=Ignore",
    )
    short = shortened("pong-vtrace.yaml", *(f"spec.earlyStopping.{rule}" for rule in rules)).early_stopping
    found = (short.plateau, short.training_return, short.value_loss, short.on_non_finite_loss)
    assert found == (None, None, None, "Ignore")
