"""Changes of a stored job: what may change, what may not, and what only while it is suspended."""

from pathlib import Path

from rljob.api.generate.schema import transition_validations
from rljob.api.live import TRANSITIONS, TransitionRule

from tests.unit.api.bad_manifests import BASE, CLUSTER, ENVIRONMENT, IMPALA, PRESET, QUEUE

_SUSPENDED = ["spec.suspend=true"]
_UNNAMED = ["spec.algorithm=", "spec.replay="]
"""No algorithm: PPO."""
_WRITTEN_OUT = ["spec.algorithm.type=IMPALA", f"{ENVIRONMENT}.id=ALE/Pong-v5"]

# (base, overrides of the stored job, overrides of the new one, the field that may not change so; None: allowed)
CHANGES: list[tuple[Path, list[str], list[str], str | None]] = [
    # the preset and the type of the algorithm: added, removed and replaced, whatever they make of the job
    (BASE, [], ["spec.preset=PongApeX"], "preset"),
    (BASE, _SUSPENDED, ["spec.preset=PongApeX"], "preset"),
    (PRESET, [], ["spec.preset=", *_WRITTEN_OUT], "preset"),
    (PRESET, [], ["spec.preset=PongPPO"], "preset"),
    (PRESET, _SUSPENDED, ["spec.preset=PongPPO"], "preset"),
    (PRESET, [], ["spec.preset=PongVTrace"], None),
    (PRESET, _SUSPENDED, ["spec.presetWithout=[evaluator.triggerReturn]"], "presetWithout"),
    (BASE, [], ["spec.algorithm={type: IMPALA}", "spec.replay="], "algorithm.type"),
    (BASE, _SUSPENDED, ["spec.algorithm={type: IMPALA}", "spec.replay="], "algorithm.type"),
    (BASE, [*_UNNAMED, *_SUSPENDED], ["spec.algorithm={type: IMPALA}"], "algorithm.type"),
    (BASE, [*_UNNAMED, *_SUSPENDED], ["spec.algorithm={impala: {}}"], "algorithm.type"),
    (BASE, [*_UNNAMED, *_SUSPENDED], ["spec.algorithm={apeXDQN: {}}"], "algorithm.type"),
    (BASE, [*_UNNAMED, *_SUSPENDED], ["spec.algorithm={type: PPO}"], None),
    (BASE, [*_UNNAMED, *_SUSPENDED, "spec.algorithm={impala: {}}"], ["spec.algorithm={}"], "algorithm.type"),
    (BASE, [*_UNNAMED, *_SUSPENDED, "spec.algorithm={impala: {}}"], ["spec.algorithm.type=IMPALA"], None),
    # live fields, and the type of the algorithm written out
    (PRESET, [], ["spec.algorithm.type=IMPALA", "spec.algorithm.entropyCost=0.02"], None),
    (PRESET, ["spec.algorithm.type=IMPALA"], ["spec.algorithm="], None),
    (
        BASE,
        ["spec.algorithm.learningRateDecaySteps=9"],
        ["spec.algorithm.learningRate=0.002"],
        "algorithm.learningRate",
    ),
    (BASE, [], ["spec.managedBy=example.com/other"], "managedBy"),
    (BASE, [], ["spec.environment.id=ALE/Breakout-v5"], "environment"),
    (BASE, [], ["spec.environment.atari.frameSize=84"], "environment"),
    (BASE, [], ["spec.environment.atari.frameSize="], "environment"),
    (BASE, [], ["spec.environment.kwargs={difficulty: 1}"], "environment"),
    (BASE, ["spec.environment.kwargs={difficulty: 1}"], ["spec.environment.kwargs.difficulty=2"], "environment"),
    (PRESET, [], ["spec.environment.atari.frameSize=84"], "environment"),
    (BASE, [], ["spec.replay.shards=2"], "replay.shards"),
    (BASE, [], ["spec.replay.rateLimiter.samplesPerInsert=7"], "replay.rateLimiter"),
    (BASE, [], ["spec.replay.redis.persistence.mode=None"], "replay.redis.persistence"),
    (BASE, [], ["spec.checkpoint.storage={persistentVolumeClaim: {claimName: a}}"], "checkpoint.storage"),
    (BASE, [], ["spec.algorithm.hiddenUnits=64"], "algorithm.hiddenUnits"),
    (BASE, _SUSPENDED, ["spec.algorithm.nStep=5"], "algorithm.nStep"),
    (BASE, [*_SUSPENDED, "spec.algorithm.nStep=5"], ["spec.algorithm.nStep="], "algorithm.nStep"),
    (BASE, [*_SUSPENDED, "spec.algorithm.nStep=5"], ["spec.algorithm.nStep=4"], "algorithm.nStep"),
    (IMPALA, _SUSPENDED, ["spec.algorithm.recurrent=LSTM"], "algorithm.recurrent"),
    (PRESET, _SUSPENDED, ["spec.algorithm.hiddenUnits=64"], "algorithm.hiddenUnits"),
    (BASE, [], ["spec.image=other:1"], "image"),
    (BASE, [], ["spec.algorithm.batchSize="], "algorithm.batchSize"),
    (IMPALA, [], ["spec.algorithm.gamma=0.9"], "algorithm.gamma"),
    (PRESET, [], ["spec.algorithm.gamma=0.9"], "algorithm.gamma"),
    (IMPALA, [], [f"{QUEUE}.capacity=128"], "algorithm.impala.unrollQueue.capacity"),
    (BASE, [], ["spec.learner.accelerator.count=1"], "learner.accelerator.count"),
    (BASE, [], ["spec.learner.resources.requests={cpu: 0.5}"], "learner.resources.requests"),
    (BASE, ["spec.actors.resources.requests={cpu: 0.5}"], ["spec.actors.replicas=3"], None),
    (
        BASE,
        ["spec.actors.resources.requests={cpu: 0.5}"],
        ["spec.actors.resources.requests={cpu: 1}"],
        "actors.resources",
    ),
    (BASE, [], ["spec.actors.envsPerActor=9"], "actors.envsPerActor"),
    (BASE, [], ["spec.network.encryption=None"], "network.encryption"),
    (BASE, [], ["spec.replay.capacity=300000"], "replay.capacity"),
    (BASE, [], ["spec.replay.capacityBytes=1Gi"], "replay.capacityBytes"),
    (BASE, [], ["spec.replay.redis.external.url=redis://a:6379"], "replay.redis.external"),
    (BASE, [], ["spec.actors.podTemplate={spec: {hostNetwork: true}}"], "actors.podTemplate"),
    (BASE, ["spec.replay.image=a:1"], ["spec.replay.image=a:2"], "replay.image"),
    (BASE, ["spec.replay.image=a:1"], ["spec.replay.image="], "replay.image"),
    (BASE, [], ["spec.evaluator.env=[{name: A, value: a}]"], "evaluator.env"),
    (BASE, ["spec.actors.env=[{name: A, value: a}]"], ["spec.actors.env=[{name: A, value: b}]"], "actors.env"),
    (CLUSTER, [], ["spec.learner.podTemplate={spec: {hostNetwork: true}}"], "learner.podTemplate"),
    (BASE, [], ["spec.successPolicy.targetReturn={value: 18}"], "successPolicy.targetReturn"),
    (BASE, [], ["spec.successPolicy.metric={name: is_success, value: 1}"], "successPolicy.metric"),
    (PRESET, [], ["spec.successPolicy.targetReturn={value: 20}"], "successPolicy.targetReturn"),
    (BASE, _SUSPENDED, ["spec.image=other:1"], None),
    (PRESET, _SUSPENDED, ["spec.algorithm.gamma=0.9"], None),
    (BASE, _SUSPENDED, ["spec.actors.podTemplate={spec: {hostNetwork: true}}", "spec.replay.capacity=300000"], None),
    (BASE, _SUSPENDED, ["spec.suspend=false", "spec.algorithm.learningRate=0.01"], None),
    (BASE, [], [*_SUSPENDED, "spec.algorithm.learningRate=0.01"], None),
    (BASE, _SUSPENDED, ["spec.replay.shards=2"], "replay.shards"),
    (BASE, [], ["spec.actors.replicas=3"], None),
    (PRESET, [], ["spec.actors.replicas=3"], None),
    (BASE, [], _SUSPENDED, None),
    (BASE, [], ["spec.successPolicy.rawFrames=1000", "spec.earlyStopping.plateau={}"], None),
    (CLUSTER, [], ["spec.autoscaling.maxReplicas=300", "spec.backoffLimit=9"], None),
]

# What is in force stays, but is written out or no more: no change for `rljob`, which compares jobs in force, but one for a
# cluster, which compares what is written (`NOT_IN_CEL`). (base, overrides of the stored job, overrides of the new one, the field)
WRITTEN_OUT: list[tuple[Path, list[str], list[str], str]] = [
    (PRESET, _SUSPENDED, ["spec.algorithm.hiddenUnits=128"], "algorithm.hiddenUnits"),
    (BASE, _SUSPENDED, ["spec.algorithm.nStep=3"], "algorithm.nStep"),
    (BASE, [], [f"{ENVIRONMENT}.frameStack=4"], "environment"),
]


def rule_of(field: str) -> TransitionRule:
    """The rule about the field, or about the smallest section that it is in."""
    covering = [rule for rule in TRANSITIONS if field == rule.field or field.startswith(f"{rule.field}.")]
    return max(covering, key=lambda rule: len(rule.field))


def said_by_the_server(rule: TransitionRule) -> tuple[str, str]:
    """(place, message) of the validation that holds the rule, perhaps among others of its section."""
    section, _, rest = rule.field.partition(".")
    for validation in transition_validations(TRANSITIONS):
        place, message = validation["fieldPath"], validation["message"]
        names = message.removesuffix(rule.message).removesuffix(": ").split(", ")
        if message.endswith(rule.message) and (place == f".{rule.field}" or (place == f".{section}" and rest in names)):
            return f"spec{place}", message
    raise AssertionError(f"no validation says anything of {rule.field}")
