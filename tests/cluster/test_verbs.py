"""What a user types: get, explain, scale, apply, and what the controller writes: status."""

import json
from typing import Any

import pytest
from rljob.api import load_manifest, parse_job
from rljob.api.generate.crd import COLUMNS

from tests.cluster import jobs
from tests.cluster.control_plane import ControlPlane
from tests.unit.api.bad_manifests import BASE, CLUSTER, EXAMPLES, IMPALA, PRESET, document


@pytest.fixture
def pong(cluster: ControlPlane) -> str:
    """A stored job, new for each test."""
    cluster.create(jobs.JOBS, document(BASE))
    return "pong"


STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "actors": {"replicas": 3, "ready": 2, "selector": "rljob.dev/job=pong,rljob.dev/role=actor"},
    "autoscaling": {"desiredReplicas": 4},
    "progress": {"learnerUpdates": 1500, "evalReturn": "17.5", "queueFillPercent": 40},
    "conditions": [
        {"type": "LearnerReady", "status": "True", "reason": "Serving", "message": "",
         "lastTransitionTime": "2026-11-21T16:05:00.250Z"},
        {"type": "Ready", "status": "True", "reason": "Running", "message": "all roles work",
         "lastTransitionTime": "2026-11-21T16:05:00.250Z"},
    ],
}  # fmt: skip


def test_apply_every_example(cluster: ControlPlane) -> None:
    assert EXAMPLES
    for file in EXAMPLES:
        applied = cluster.kubectl("apply", "-n", "default", "-f", str(file))
        assert applied.returncode == 0, applied.stderr
        assert applied.stderr == "", "no warnings"
        assert applied.stdout == f"rljob.rljob.dev/{file.stem} created\n"
    before = jobs.read(cluster, CLUSTER.stem).document["metadata"]
    cluster.told("apply", "-n", "default", "-f", str(CLUSTER))
    after = jobs.read(cluster, CLUSTER.stem).document["metadata"]
    assert after["resourceVersion"] == before["resourceVersion"], "the defaults filled in do not look like changes"
    listed = cluster.kubectl("get", "rl", "-n", "default", "-o", "name")
    assert {f"rljob.rljob.dev/{file.stem}" for file in EXAMPLES} <= set(listed.stdout.split())


def test_a_misspelt_field_is_named(cluster: ControlPlane) -> None:
    wrong = document(BASE)
    wrong["spec"]["replay"]["capcity"] = 5
    applied = cluster.kubectl("apply", "-n", "default", "-f", "-", stdin=json.dumps(wrong))
    assert applied.returncode == 1
    assert 'unknown field "spec.replay.capcity"' in applied.stderr


def test_columns(cluster: ControlPlane, pong: str) -> None:
    assert cluster.told("get", "rlj", "-n", "default", pong).splitlines()[1].split()[0] == pong, "all others are empty"
    jobs.update(cluster, {"status": STATUS}, pong, "/status").stored()
    heads, row = cluster.kubectl("get", "rlj", "-n", "default", pong).stdout.splitlines()
    assert heads.split() == ["NAME", *(column["name"].upper() for column in COLUMNS if not column.get("priority"))]
    assert row.split()[:-1] == ["pong", "Running", "2", "4", "True", "1500", "17.5", "40"]
    wide = cluster.kubectl("get", "rlj", "-n", "default", pong, "-o", "wide").stdout.splitlines()[0]
    assert all(column["name"].upper() in wide for column in COLUMNS)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("rljob", ["RLJob", "One training job", "spec"]),
        ("rljob.spec.replay", ["capacity", "integer", "rateLimiter"]),
        ("rljob.spec.replay.rateLimiter.samplesPerInsert", ["samplesPerInsert", "number"]),
        ("rljob.spec.actors.replicas", ["replicas", "integer"]),
        ("rljob.spec.preset", ["PongVTrace", "CartPoleIMPALA", "ApeXAtari"]),
        ("rljob.spec.algorithm.type", ["ApeXDQN", "IMPALA", "Custom"]),
        ("rljob.spec.algorithm.impala.unrollQueue.maxPolicyLagUpdates", ["integer", "updates"]),
        ("rljob.spec.environment.kwargs", ["Object", "gymnasium.make"]),
        ("rljob.status.conditions", ["lastTransitionTime", "reason"]),
        (
            # What it does, its type and bounds, and what it is unless it is written.
            "rljob.spec.algorithm.learningRate",
            ["FIELD: learningRate <number>", "step size of the optimiser", "Above 0 to 1.",
             "Default: 0.0003 for PPO and SAC; 0.0001 for ApeXDQN; 0.0006 for IMPALA."],
        ),
    ],
)  # fmt: skip
def test_explain_teaches_a_field(cluster: ControlPlane, path: str, words: list[str]) -> None:
    told = " ".join(cluster.told("explain", path).split())
    assert [word for word in words if word not in told] == []


def test_scale_of_a_manifest_that_is_a_preset_alone(cluster: ControlPlane) -> None:
    """The number of actors is stored although no user wrote it, as the scale subresource reads it from there."""
    cluster.told("apply", "-n", "default", "-f", str(PRESET))
    assert cluster.request("GET", f"{jobs.JOBS}/pong/scale")[1]["spec"] == {"replicas": 1}
    cluster.told("scale", "-n", "default", "rlj/pong", "--replicas=3")
    assert cluster.request("GET", f"{jobs.JOBS}/pong/scale")[1]["spec"] == {"replicas": 3}
    stored = jobs.read(cluster, "pong")
    filled_in = {"suspend": False, "algorithm": {}, "evaluator": {}}
    assert stored.document["spec"] == {"preset": "PongVTrace", "actors": {"replicas": 3}, **filled_in}
    cluster.told("apply", "-n", "default", "-f", str(PRESET))
    assert jobs.read(cluster, "pong").document["spec"]["actors"]["replicas"] == 3, "a user keeps what they scaled to"
    spec = parse_job(stored.document).spec
    assert (spec.actors.replicas, spec.algorithm) == (3, load_manifest(PRESET).spec.algorithm)


NUMBERS = """\
apiVersion: rljob.dev/v1alpha1
kind: RLJob
metadata: {name: numbers}
spec:
  preset: PongVTrace
  algorithm: {gamma: 1, learningRate: 1e-4, learningRateFinal: .5e-4, learningRateDecaySteps: 2e6, batchSize: 16.0}
  successPolicy: {rawFrames: 2e8, targetReturn: {value: 18}}
"""


def test_numbers_arrive_as_numbers_however_people_write_them(cluster: ControlPlane) -> None:
    cluster.told("apply", "-n", "default", "-f", "-", stdin=NUMBERS)
    spec = parse_job(jobs.read(cluster, "numbers").document).spec
    impala = spec.algorithm.parameters
    assert (impala.gamma, impala.learning_rate, impala.learning_rate_final) == (1.0, 1e-4, 0.5e-4)
    assert (impala.learning_rate_decay_steps, impala.batch_size, spec.success_policy.raw_frames) == (
        2_000_000,
        16,
        2 * 10**8,
    )


@pytest.mark.parametrize(
    "line", ['gamma: "1"', 'learningRate: "1e-4"', 'batchSize: "16"', "batchSize: 16.5", "gamma: true"]
)
def test_what_is_no_number_is_refused(cluster: ControlPlane, line: str) -> None:
    wrong = NUMBERS.replace("gamma: 1,", "").replace("batchSize: 16.0", line).replace("learningRate: 1e-4, ", "")
    applied = cluster.kubectl("apply", "-n", "default", "-f", "-", stdin=wrong)
    assert applied.returncode == 1
    assert f"spec.algorithm.{line.split(':')[0]}" in applied.stderr
    assert "must be of type" in applied.stderr


def test_scale(cluster: ControlPlane, pong: str) -> None:
    cluster.told("scale", "-n", "default", f"rlj/{pong}", "--replicas=5")
    assert jobs.read(cluster, pong).document["spec"]["actors"]["replicas"] == 5
    jobs.update(cluster, {"status": STATUS}, pong, "/status")
    code, scale = cluster.request("GET", f"{jobs.JOBS}/{pong}/scale")
    assert code == 200
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 3, "selector": STATUS["actors"]["selector"]}


def test_an_autoscaler_is_not_refused_for_bounds_that_the_controller_keeps(cluster: ControlPlane) -> None:
    """Neither the number that a server fills in nor one that another client wrote stands in the way of new bounds."""
    bounded = document(IMPALA, ["spec.autoscaling={mode: External, minReplicas: 2, maxReplicas: 3}"])
    jobs.create(cluster, bounded, dry_run=False).stored()
    cluster.told("scale", "-n", "default", "rlj/pong", "--replicas=4")
    jobs.update(cluster, {"spec": {"autoscaling": {"minReplicas": 6, "maxReplicas": 9}}}, "pong").stored()


def test_status_is_written_by_its_own_door_only(cluster: ControlPlane, pong: str) -> None:
    ignored = jobs.update(cluster, {"status": STATUS}, pong).stored()
    assert ignored["status"] == {"observedGeneration": 0}, "as before the first look"
    written = jobs.update(cluster, {"status": STATUS, "spec": {"suspend": True}}, pong, "/status").stored()
    assert written["status"] == STATUS
    assert written["spec"]["suspend"] is False
    assert written["metadata"]["generation"] == 1, "a status is no change of the job"


def test_a_wrong_status_is_refused(cluster: ControlPlane, pong: str) -> None:
    answer = jobs.update(cluster, {"status": {"actors": {"ready": "two"}}}, pong, "/status")
    assert not answer.accepted
    assert "status.actors.ready" in answer.message
