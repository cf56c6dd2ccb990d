"""Edits of a manifest as they are drawn: what may stand in each field, right and wrong."""

import copy
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from rljob.algorithms.built_in import BUILT_IN
from rljob.api.algorithm import BLOCKS, SHARED
from rljob.api.environment import EnvironmentParameters

from tests.unit.api.bad_manifests import (
    BASE,
    CLUSTER,
    IMPALA,
    PRESET,
    document,
    effective,
)

_JOBS: tuple[tuple[Path, list[str]], ...] = (
    (BASE, []),
    (IMPALA, []),
    (IMPALA, ["spec.algorithm={type: PPO, minibatches: 8}"]),
    (IMPALA, ["spec.algorithm={type: SAC, batchSize: 32}"]),
    (PRESET, []),
    (CLUSTER, []),
)
START = [document(*job) for job in _JOBS]
IN_FORCE = [effective(*job) for job in _JOBS]
NUMBERS_AND_MORE = (
    0, 1, 2, 3, 7, 8, 20, 31, 32, 33, 100, 128, 640, 1.0, 2e6, 1e-5, 0.5, 0.999, 1.5, -1, 10**16, 1e300,
    float("nan"), float("inf"), "0.5", "1", "", True, False, "true", "None", "LSTM", "PPO", "Adam",
    "RMSProp", "CentredRMSProp", "MLP", "Nature", "my_pkg.nets:make", "Auto", "Enabled", [], {}, [1], {"a": 1}, None,
)  # fmt: skip
_PARAMETERS = {
    path: None
    for kind in (*(each.parameters for each in BUILT_IN.values()), EnvironmentParameters)
    for name, field in kind.model_fields.items()
    if name not in ("unroll_queue", "kwargs", "register_functions", "actions")
    for path in (
        [f"environment.{field.alias}"]
        if kind is EnvironmentParameters
        else [f"algorithm.{field.alias}"]
        if field.alias in SHARED
        else [f"algorithm.{each.block}.{field.alias}" for each in BUILT_IN.values() if each.parameters is kind]
    )
}
SETTINGS: dict[str, tuple[Any, ...]] = {
    "preset": ("PongVTrace", "PongPPO", "PongApeX", "ImpalaAtari", "ApeXAtari", "Best", None),
    "presetWithout": ([], ["successPolicy.targetReturn.value"], ["evaluator", "successPolicy"], ["environment.id"], "a", None),
    "algorithm.type": ("ApeXDQN", "IMPALA", "PPO", "SAC", "DQN", None),
    "algorithm.impala": ({}, {"gamma": 0.9}, None, 3),
    "algorithm.ppo": ({}, {"clipRange": 0.1}, None, []),
    "algorithm.sac": ({}, {"targetEntropy": -1}, None, []),
    "algorithm.apeXDQN": ({}, {"double": False}, None, []),
    "algorithm.custom": ({"factory": "m:f"}, {"factory": "m"}, {}, None),
    "replay": (None, {}, {"capacity": 100}, {"shards": 2}),
    "replay.capacity": (0, 1, 40, 399, 400, 401, 8000, 50_000, 2e5, 10**11, 10**12, "5", True),
    "replay.shards": (0, 1, 2, 3, 256, 257),
    "replay.rateLimiter.minSize": (0, 1, 127, 128, 400, 8000, 50_000, 10**15, 10**16),
    "replay.rateLimiter.samplesPerInsert": (0, 0.5, 1, 8, 10_000, 10_001, -1, "6", float("inf"), 1e2),
    "replay.rateLimiter.errorBuffer": (0, 99, 100, 599.5, 600, 799, 800, 1e15, 1e16, None),
    "replay.capacityBytes": ("1Gi", "4GB", 5, 5e9, 0.5, "0", -1, "1e3", "1e300"),
    "replay.prioritization.exponent": (0, 1, 1.0001, -0.0, 0.5, "0.5"),
    "queue": ({}, None),
    "algorithm.impala.unrollQueue": (None, {}, {"capacity": 31}, {"maxPolicyLagUpdates": 3}),
    "algorithm.impala.unrollQueue.capacity": (0, 1, 31, 32, 33, 64, 1000, 10**6, 10**7),
    "algorithm.impala.unrollQueue.maxPolicyLagUpdates": (0, 1, 3, 4, 5, 6, 50, 107, 108, 400, 10**9),
    "algorithm.impala.unrollQueue.overflow": ("Block", "DropOldest", "Drop"),
    "actors.replicas": (-1, 0, 1, 2, 16, 100, 200, 201, 100_001),
    "actors.envsPerActor": (0, 1, 3, 4, 5, 8, 64, 65, 4096),
    "actors.inference": ("Local", "Central"),
    "inference.replicas": (0, 1, 1001),
    "inference.maxBatchSize": (1, 7, 8, 64),
    "autoscaling.mode": ("Internal", "External", "Disabled", "On"),
    "autoscaling.minReplicas": (0, 1, 4, 5, 200),
    "autoscaling.maxReplicas": (0, 1, 3, 16, 200),
    "autoscaling.guards": (None, {}, {"maxPolicyLagUpdates": 4}, {"maxPolicyLagUpdates": 51}),
    "autoscaling.target.queueUtilizationPercent": (0, 1, 50, 99, 100),
    "evaluator.enabled": (True, False, "true"),
    "evaluator.triggerReturn": (None, 3, "3"),
    "successPolicy.targetReturn": (None, {"value": 18}),
    "successPolicy.metric": (None, {"name": "is_success", "value": 1}, {"name": "é", "value": 1}, {}),
    "earlyStopping.plateau": (None, {}, {"minDelta": -1}),
    "earlyStopping.trainingReturn": (None, {}, {"windowRawFrames": 0}),
    "earlyStopping.valueLoss": (None, {}, {"factor": 1}, {"factor": 1.5, "graceRawFrames": 1e6}),
    "suspend": (True, False),
    "checkpoint": (None, {}, {"retain": 2}, {"storage": {}}, {"include": ["Replay"]}, {"include": ["Learner"] * 2}),
    "failurePolicy.rules": (
        [],
        [{"name": "a", "action": "Ignore"}],
        [{"name": "a", "onExitCodes": {"values": [-1]}, "action": "Ignore"}],
        [{"name": "a", "onExitCodes": {"values": [1]}, "roles": ["Actor", "Actor"], "action": "Ignore"}],
        [{"name": "a", "onPodConditions": [{"type": "X"}], "action": "Ignore"}] * 2,
        [{"name": "a", "onPodConditions": [{"type": "X"}], "onExitCodes": None, "action": "Ignore"}],
        [{"name": "a", "onPodConditions": [{"type": "X"}], "onExitCode": None, "action": "Ignore"}],
    ),
    "learner.accelerator": ({}, {"count": 2}, {"count": None, "onMissing": "Fail"}, {"count": 0, "onMissing": "UseCPU"},
                            {"count": 0, "device": "Accelerator"}),
    "learner.resources": ({"limits": {"cpu": 2}}, {"requests": {"cpu": "lots"}}, {"requests": {"cpu": True}}, {"x": {}}),
    "learner.resources.requests": ({"cpu": 0.5}, {"cpu": -0.5}, {"cpu": 1e300}, {"cpu": [1]}, {"cpu": {}}, {"cpu": float("inf")}),
    "learner.resources.limits": (None, {"cpu": None}, {"cpu": 1, "memory": None}),
    "learner.podTemplate": ({"any": {"thing": [1]}}, {"metadata": {"labels": None}}, [], None),
    "learner.tolerations": ([{}], [{"operator": "Exists", "anything": ["x"]}], [None], None),
    "learner.env": (
        None,
        [],
        [{"name": "A", "value": "a"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        [{"name": "A", "value": None}],
        [{"name": "A"}, {"name": "A"}],
        [{"name": None}],
        [{"value": "a"}],
        [None],
    ),
    "actors.nodeSelector": (None, {"zone": None}, {"zone": "a"}),
    "actors.spot": (True, "true"),
    "actors.replcas": (2, None),
    "imagePullSecrets": ([{"name": "a"}, {"name": "a"}], [{}], [None], [{"name": None}], [{"name": "a", "nmae": None}], []),
    "environment.id": ("CartPole-v1", "ale_py:ALE/Pong-v5", "a b", "", 5, "m:f\n", None),
    "environment.actions": ([], "Clipped", "Squashed", "squashed", "0,1", 3, 0.5, True, {}, {"a": 1}, [0] * 257, None),
    "environment.kwargs": ({}, {"a": {"b": [1, None]}}, [], "{}", None),
    "environment.register": ([], ["m:f"], ["a"], "m:f", [None], None),
    "environment.atari.fullActionSpace": (False, "true"),
    "unknown": (1, None),
    **{f"algorithm.{block}.wings": (1, None) for block in BLOCKS.values()},
    **dict.fromkeys(_PARAMETERS, NUMBERS_AND_MORE),
}  # fmt: skip
SETTING = st.sampled_from([(path, value) for path, values in SETTINGS.items() for value in values])


def changed(given: dict[str, Any], path: str, value: Any, *, merge: bool = False) -> None:
    """Set ``spec.<path>``; nothing happens where something above it is no mapping. ``merge``: what a mapping has not, stays."""
    node: Any = given["spec"]
    *above, last = path.split(".")
    for part in above:
        if not isinstance(node, dict):
            return
        if node.get(part) is None:
            node[part] = {}
        node = node[part]
    if isinstance(node, dict):
        new = copy.deepcopy(value)
        keep = merge and isinstance(new, dict) and isinstance(node.get(last), dict)
        node[last] = {**node[last], **new} if keep else new


def edited(edits: tuple[dict[str, Any], list[tuple[str, Any]]]) -> dict[str, Any]:
    start, places = edits
    given = copy.deepcopy(start)
    for path, value in places:
        changed(given, path, value)
    return given
