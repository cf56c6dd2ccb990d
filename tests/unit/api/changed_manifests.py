"""Changes of a stored job: what may change, what may not, and what only while it is suspended."""

from __future__ import annotations

from pathlib import Path

from bad_manifests import BASE, IMPALA
from written import CLUSTER

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
    (BASE, [], ["spec.image=other:1"], "image"),
    (BASE, [], ["spec.algorithm.parameters.gamma=0.9"], "algorithm.parameters"),
    (IMPALA, [], ["spec.algorithm.parameters.gamma=0.9"], "algorithm.parameters"),
    (BASE, ["spec.suspend=true", "spec.checkpoint.onSuspend=Skip"], ["spec.image=other:1"], None),
    (BASE, ["spec.suspend=true", "spec.checkpoint.onSuspend=Skip"], ["spec.algorithm.parameters.gamma=0.9"], None),
    (BASE, ["spec.suspend=true", "spec.checkpoint.onSuspend=Skip"], ["spec.replay.shards=2"], "replay.shards"),
    (BASE, [], ["spec.actors.replicas=3"], None),
    (BASE, [], ["spec.suspend=true", "spec.checkpoint.onSuspend=Skip"], None),
    (BASE, [], ["spec.replay.capacity=300000"], None),
    (IMPALA, [], ["spec.queue.capacity=128"], None),
    (CLUSTER, [], ["spec.autoscaling.maxReplicas=300", "spec.learner.accelerator.count=0"], None),
]
