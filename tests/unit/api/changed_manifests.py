"""Changes of a stored job: what may change, what may not, and what only while it is suspended."""

from __future__ import annotations

from pathlib import Path

from bad_manifests import BASE, IMPALA
from written import CLUSTER

_SUSPENDED = ["spec.suspend=true", "spec.checkpoint.onSuspend=Skip"]

# (base, overrides of the stored job, overrides of the new one, the field that may not change so; None: allowed)
CHANGES: list[tuple[Path, list[str], list[str], str | None]] = [
    (
        BASE,
        [],
        ["spec.algorithm.name=IMPALA", "spec.replay=", "spec.queue={}", "spec.algorithm.parameters="],
        "algorithm.name",
    ),
    (BASE, [], ["spec.managedBy=example.com/other"], "managedBy"),
    (BASE, [], ["spec.environment.id=ALE/Breakout-v5"], "environment"),
    (BASE, [], ["spec.environment.parameters.frameSize=84"], "environment"),
    (BASE, [], ["spec.replay.shards=2"], "replay.shards"),
    (BASE, [], ["spec.replay.rateLimiter.samplesPerInsert=7"], "replay.rateLimiter"),
    (BASE, [], ["spec.replay.redis.persistence.mode=None"], "replay.redis.persistence"),
    (BASE, [], ["spec.checkpoint.storage={persistentVolumeClaim: {claimName: a}}"], "checkpoint.storage"),
    (BASE, [], ["spec.algorithm.parameters.hiddenUnits=64"], "algorithm.parameters.hiddenUnits"),
    (BASE, [], ["spec.algorithm.parameters.preset=ApeXAtari"], "algorithm.parameters"),
    (BASE, _SUSPENDED, ["spec.algorithm.parameters.nStep=5"], "algorithm.parameters.nStep"),
    (BASE, [*_SUSPENDED, "spec.algorithm.parameters.nStep=3"], ["spec.algorithm.parameters.preset=None"], None),
    (IMPALA, _SUSPENDED, ["spec.algorithm.parameters.recurrent=LSTM"], "algorithm.parameters.recurrent"),
    (IMPALA, _SUSPENDED, ["spec.algorithm.parameters.lstmUnits=256"], None),
    (BASE, [], ["spec.image=other:1"], "image"),
    (BASE, [], ["spec.algorithm.parameters.gamma=0.9"], "algorithm.parameters"),
    (IMPALA, [], ["spec.algorithm.parameters.gamma=0.9"], "algorithm.parameters"),
    (BASE, [], ["spec.learner.accelerator.count=1"], "learner"),
    (BASE, [], ["spec.actors.envsPerActor=9"], "actors.envsPerActor"),
    (BASE, [], ["spec.network.encryption=None"], "network"),
    (BASE, [], ["spec.replay.capacity=300000"], "replay.capacity"),
    (BASE, [], ["spec.replay.capacityBytes=1Gi"], "replay.capacityBytes"),
    (BASE, [], ["spec.actors.podTemplate={spec: {hostNetwork: true}}"], "actors.podTemplate"),
    (CLUSTER, [], ["spec.learner.podTemplate={spec: {hostNetwork: true}}"], "learner"),
    (IMPALA, [], ["spec.queue.capacity=128"], "queue"),
    (BASE, [], ["spec.successPolicy.targetReturn={value: '18'}"], "successPolicy.targetReturn"),
    (BASE, _SUSPENDED, ["spec.image=other:1"], None),
    (BASE, _SUSPENDED, ["spec.algorithm.parameters.gamma=0.9"], None),
    (BASE, _SUSPENDED, ["spec.actors.podTemplate={spec: {hostNetwork: true}}", "spec.replay.capacity=300000"], None),
    (BASE, _SUSPENDED, ["spec.suspend=false", "spec.algorithm.parameters.gamma=0.9"], None),
    (BASE, [], [*_SUSPENDED, "spec.algorithm.parameters.gamma=0.9"], None),
    (BASE, _SUSPENDED, ["spec.replay.shards=2"], "replay.shards"),
    (BASE, [], ["spec.actors.replicas=3"], None),
    (BASE, [], _SUSPENDED, None),
    (BASE, [], ["spec.successPolicy.envFrames=1000", "spec.earlyStopping.plateau={}"], None),
    (CLUSTER, [], ["spec.autoscaling.maxReplicas=300", "spec.failurePolicy.resetAfterSeconds=60"], None),
]
