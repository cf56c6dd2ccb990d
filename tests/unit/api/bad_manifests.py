"""Documents as a user of kubectl would write them, and a table of bad ones: each rule broken once, by overrides of a good one."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rljob.api import RLJob, dump_manifest, load_manifest
from rljob.api.document import parse_document
from rljob.api.effective import effective as with_defaults, with_preset
from rljob.api.overrides import apply_overrides, read_overrides
from rljob.api.rules.algorithm import an_environment_or_a_preset
from rljob.api.structure import without_nulls

from tests.support import paths

BASE = Path(__file__).parent / "base.yaml"
IMPALA = Path(__file__).parent / "impala.yaml"
PRESET = Path(__file__).parent / "preset.yaml"
APEX = "spec.algorithm.apeXDQN"
IMPALAS = "spec.algorithm.impala"
QUEUE = f"{IMPALAS}.unrollQueue"
ENVIRONMENT = "spec.environment"
BREAKOUT = [f"{ENVIRONMENT}.id=ALE/Breakout-v5"]
OF_NO_ENVIRONMENT = {
    "environment.actions": "Clipped",
    "environment.atari.frameSize": 84,
    "environment.centreInput": False,
    "algorithm.network": "Auto",
    "evaluator.triggerReturn": None,
    "successPolicy.targetReturn": None,
}
"""What is in force of a preset's fields that are about its environment, where another one is written."""
NOTHING_TO_START_FROM = an_environment_or_a_preset.message

# (overrides that break it, path of the problem, words that its text must contain)
BROKEN: list[tuple[list[str], str, list[str]]] = [
    # names of things
    (["metadata.name=Pong"], "metadata.name", ["'Pong'", "lower-case", "1 to 45"]),
    (["metadata.name=" + "x" * 46], "metadata.name", ["1 to 45"]),
    (["metadata.name=1pong"], "metadata.name", ["a letter first"]),
    (["metadata.lables={}"], "metadata.lables", ["unknown field", "'labels'"]),
    (["spec.algoritm.type=x"], "spec.algoritm", ["unknown field", "'algorithm'"]),
    (["spec.replay.capcity=5"], "spec.replay.capcity", ["unknown field", "'capacity'"]),
    (["spec.replay.rate_limiter.minSize=5"], "spec.replay.rate_limiter", ["'rateLimiter'"]),
    # nothing under a name that is none: a null, and a removal by --set
    (["spec.actors={replcas: }"], "spec.actors.replcas", ["got null", "unknown field", "'replicas'"]),
    (["metadata.lables=null"], "metadata.lables", ["unknown field", "'labels'"]),
    (["spec.learner.resources.limit=null"], "spec.learner.resources.limit", ["unknown field", "'limits'"]),
    (["spec.failurePolicy.rules[0].roels="], "spec.failurePolicy.rules[0].roels", ["unknown field", "'roles'"]),
    (["spec.imagePullSecrets=[null]"], "spec.imagePullSecrets[0]", ["got null", "mapping of fields"]),
    (["spec.algorithm={type: ApeXDQN, gama: }"], "spec.algorithm.gama", ["got null", "unknown field", "'gamma'"]),
    # which algorithm, and which preset
    (["spec.queue.capacity=64"], "spec.queue", ["unknown field"]),
    (
        ["spec.algorithm.type=APPO"],
        "spec.algorithm.type",
        ["PPO", "what others call APPO is algorithm: {type: IMPALA} here"],
    ),
    (
        ["spec.algorithm=DQN"],
        "spec.algorithm",
        ["mapping of fields", "what others call DQN is algorithm: {type: ApeXDQN} here"],
    ),
    # a value in the place of its section: what to write
    (["spec.environment=CartPole-v1"], "spec.environment", ["mapping of fields, such as {id: CartPole-v1}"]),
    (["spec.algorithm=IMPALA"], "spec.algorithm", ["mapping of fields, such as {type: IMPALA}"]),
    (["spec.actors=4"], "spec.actors", ["mapping of fields, such as {replicas: 4}"]),
    (["spec.evaluator=false"], "spec.evaluator", ["mapping of fields, such as {enabled: false}"]),
    (["spec.autoscaling=Internal"], "spec.autoscaling", ["mapping of fields, such as {mode: Internal}"]),
    (["spec.imagePullSecrets=[registry]"], "spec.imagePullSecrets[0]", ["mapping of fields, such as {name: registry}"]),
    (["spec.successPolicy=18"], "spec.successPolicy", ["got 18; allowed: a mapping of fields"]),
    (["spec.algorithm.type=ApexDQN"], "spec.algorithm.type", ["'ApexDQN'", "ApeXDQN, IMPALA, PPO, SAC, Custom"]),
    (["spec.algorithm.name=ApeXDQN"], "spec.algorithm.name", ["unknown field"]),
    (["spec.buffer_size=7"], "spec.buffer_size", ["unknown field; that is 'spec.replay.capacity' here"]),
    (["spec.model={}"], "spec.model", ["unknown field; that is 'algorithm' here"]),
    (["spec.algorithm.name=PPO"], "spec.algorithm.name", ["unknown field; that is 'type' here"]),
    (["spec.environment.name=a"], "spec.environment.name", ["unknown field; that is 'id' here"]),
    (["spec.n_steps=7"], "spec.n_steps", ["unknown field; that is 'spec.algorithm.unrollLength' here"]),
    (
        [f"{APEX}.max_grad_norm=7"],
        f"{APEX}.max_grad_norm",
        ["unknown field; that is 'spec.algorithm.gradientClipNorm' here"],
    ),
    (["spec.algorithm=3"], "spec.algorithm", ["mapping of fields"]),
    (["spec.algorithm.impala={}"], "spec.algorithm", ["ApeXDQN", "remove impala"]),
    (["spec.algorithm.custom={factory: 'm:f'}"], "spec.algorithm", ["ApeXDQN", "remove custom"]),
    (["spec.preset=Best"], "spec.preset", ["'Best'", "PongVTrace"]),
    (["spec.preset=PongVTrace"], "spec.algorithm.type", ["ApeXDQN", "IMPALA"]),
    (["spec.environment.id="], "spec", [NOTHING_TO_START_FROM]),
    (["spec.actors.env=[{name: A, value: on}]"], "spec.actors.env[0]", ["a text (quote a number, on and true)"]),
    (["spec.successPolicy.targetReturn=600"], "spec.successPolicy.targetReturn", ["such as {value: 600}"]),
    (["spec.environment.id='two words'"], "spec.environment.id", ["'two words'", "module:factory"]),
    (["spec.managedBy=me"], "spec.managedBy", ["rljob.dev/operator"]),
    (["spec.image='a b'"], "spec.image", ["container image"]),
    # parameters of the algorithm
    ([f"{APEX}.gama=0.9"], f"{APEX}.gama", ["unknown field", "'spec.algorithm.gamma'"]),
    (["spec.algorithm.n_step=3"], "spec.algorithm.n_step", ["unknown field", "'nStep'"]),
    ([f"{APEX}.wings=3"], f"{APEX}.wings", ["unknown field", "known here", "dueling"]),
    # parameters that several algorithms have: they stand once, and each algorithm takes its own
    ([f"{APEX}.gamma=0.9"], f"{APEX}.gamma", ["got 0.9", "algorithm.gamma"]),
    ([f"{APEX}.seed=2"], f"{APEX}.seed", ["got 2", "write spec.seed instead"]),
    (["spec.algorithm.network=Deep"], "spec.algorithm.network", ["'Deep'", "Compact", "with algorithm ApeXDQN"]),
    (
        ["spec.algorithm={type: Custom, custom: {factory: 'm:f', parameters: {gamma: 0.9}}}"],
        "spec.algorithm.custom.parameters.gamma",
        ["write spec.algorithm.gamma instead"],
    ),
    ([f"{APEX}=[]"], APEX, ["mapping of fields"]),
    (["spec.algorithm.gamma=1.5"], "spec.algorithm.gamma", ["1.5", "from 0 to 1"]),
    (["spec.algorithm.gamma='0.99'"], "spec.algorithm.gamma", ["'0.99'", "from 0 to 1"]),
    (["spec.algorithm.gamma=true"], "spec.algorithm.gamma", ["got true", "from 0 to 1"]),
    (["spec.algorithm.gradientClipNorm=-1"], "spec.algorithm.gradientClipNorm", ["finite", "0 upwards"]),
    (["spec.algorithm.nStep=0"], "spec.algorithm.nStep", ["integer from 1 to 100"]),
    (["spec.algorithm.nStep='3'"], "spec.algorithm.nStep", ["'3'", "integer from 1 to 100"]),
    (["spec.algorithm.nStep=2.5"], "spec.algorithm.nStep", ["integer from 1 to 100"]),
    (["spec.algorithm.nStep=60"], "spec.algorithm.nStep", ["at most chunkLength", "chunkLength (50)"]),
    (["spec.algorithm.batchSize=-1"], "spec.algorithm.batchSize", ["integer from 1 to 65,536"]),
    (["spec.algorithm.learningRate=0"], "spec.algorithm.learningRate", ["above 0 to 1"]),
    (["spec.algorithm.learningRateFinal=0.5"], "spec.algorithm.learningRateFinal", ["at most learningRate (0.0001)"]),
    (["spec.algorithm.learningRateFinal=1e-5"], "spec.algorithm.learningRateFinal", ["learningRateDecaySteps"]),
    (["spec.algorithm.optimizer=adam"], "spec.algorithm.optimizer", ["Adam, RMSProp, CentredRMSProp"]),
    (["spec.algorithm.targetUpdateTau=-.1"], "spec.algorithm.targetUpdateTau", ["from 0 to 1"]),
    (
        ["spec.algorithm.targetUpdateTau=0.01", "spec.algorithm.targetUpdateInterval=100"],
        "spec.algorithm.targetUpdateInterval",
        ["0 or nothing with targetUpdateTau"],
    ),
    ([f"{APEX}.double=1"], f"{APEX}.double", ["true or false"]),
    (["spec.algorithm={type: Custom}"], "spec.algorithm.custom", ["required with type Custom"]),
    (
        ["spec.algorithm={type: Custom, custom: {factory: 'qr_dqn.py'}}"],
        "spec.algorithm.custom.factory",
        ["module:factory", "file.py:factory"],
    ),
    (["spec.algorithm.custom.parameters={a: 1}"], "spec.algorithm.custom.factory", ["required"]),
    (
        ["spec.algorithm.targetUpdateInterval=0"],
        "spec.algorithm.targetUpdateInterval",
        ["1 or more while targetUpdateTau is 0"],
    ),
    (["spec.algorithm.network=ResNet"], "spec.algorithm.network", ["Nature", "Compact", "MLP", "module:factory"]),
    (["spec.algorithm.network='my_pkg.nets:'"], "spec.algorithm.network", ["module:factory"]),
    (["spec.algorithm.evaluationWeightsDecay=1"], "spec.algorithm.evaluationWeightsDecay", ["0 to below 1"]),
    (["spec.seed=-1"], "spec.seed", ["integer from 0"]),
    (["spec.algorithm.chunkLength=100000"], "spec.algorithm.chunkLength", ["integer from 1 to 1,000"]),
    # environment parameters
    ([f"{ENVIRONMENT}.frameSize=42"], f"{ENVIRONMENT}.frameSize", ["did you mean 'atari.frameSize'"]),
    ([f"{ENVIRONMENT}.atari.framesize=42"], f"{ENVIRONMENT}.atari.framesize", ["'frameSize'"]),
    ([f"{ENVIRONMENT}.atari.frameSize=8"], f"{ENVIRONMENT}.atari.frameSize", ["integer from 16 to 512"]),
    ([f"{ENVIRONMENT}.actions=[0, 2, 2]"], f"{ENVIRONMENT}.actions", ["once"]),
    ([f"{ENVIRONMENT}.actions=0,2"], f"{ENVIRONMENT}.actions", ["'0,2'", "a list, such as [a, b]"]),
    ([f"{ENVIRONMENT}.actions=squashed"], f"{ENVIRONMENT}.actions", ["'squashed'", "or Clipped or Squashed"]),
    ([f"{ENVIRONMENT}.actions=[1024]"], f"{ENVIRONMENT}.actions[0]", ["integer from 0 to 1,023"]),
    ([f"{ENVIRONMENT}.actions=[up]"], f"{ENVIRONMENT}.actions[0]", ["'up'", "integer from 0"]),
    ([f"{ENVIRONMENT}.register=[minigrid]"], f"{ENVIRONMENT}.register[0]", ["'minigrid'", '"module:function"']),
    ([f"{ENVIRONMENT}.rewardClipping=true"], f"{ENVIRONMENT}.rewardClipping", ["Auto, Enabled, Disabled"]),
    ([f"{ENVIRONMENT}.atari.fireReset='true'"], f"{ENVIRONMENT}.atari.fireReset", ["true or false"]),
    ([f"{ENVIRONMENT}.parameters={{frameSize: 42}}"], f"{ENVIRONMENT}.parameters", ["unknown field"]),
    ([f"{ENVIRONMENT}.inputScale=0"], f"{ENVIRONMENT}.inputScale", ["finite number above 0"]),
    (
        [f"{ENVIRONMENT}.atari.stickyActionProbability=1"],
        f"{ENVIRONMENT}.atari.stickyActionProbability",
        ["0 to below 1"],
    ),
    ([f"{ENVIRONMENT}.atari.lifeLoss=Ends"], f"{ENVIRONMENT}.atari.lifeLoss", ["EndsEpisode"]),
    ([f"{ENVIRONMENT}.kwargs=[1]"], f"{ENVIRONMENT}.kwargs", ["mapping"]),
    ([f"{ENVIRONMENT}.kwargs='{{}}'"], f"{ENVIRONMENT}.kwargs", ["mapping"]),
    ([f"{ENVIRONMENT}.maxEpisodeRawFrames=2"], f"{ENVIRONMENT}.maxEpisodeRawFrames", ["atari.frameSkip"]),
    (
        [f"{ENVIRONMENT}.actions=[0, 1]", f"{ENVIRONMENT}.atari.fullActionSpace=true"],
        f"{ENVIRONMENT}.actions",
        ["not both"],
    ),
    # replay
    (["spec.replay.capacity=0"], "spec.replay.capacity", ["integer from 1"]),
    (["spec.replay.capacity='200000'"], "spec.replay.capacity", ["'200000'", "integer"]),
    (["spec.replay.capacity=true"], "spec.replay.capacity", ["got true", "integer"]),
    (["spec.replay.capacity=4000"], "spec.replay.rateLimiter.minSize", ["8000", "at most replay.capacity (4,000)"]),
    (["spec.replay.capacityBytes=4GB"], "spec.replay.capacityBytes", ["'4GB'", "4Gi"]),
    (["spec.replay.capacityBytes=-1"], "spec.replay.capacityBytes", ["quantity from 0"]),
    (["spec.replay.shards=0"], "spec.replay.shards", ["integer from 1"]),
    (["spec.replay.prioritization.exponent=1.1"], "spec.replay.prioritization.exponent", ["1.1", "from 0 to 1"]),
    (["spec.replay.prioritization.importance=x"], "spec.replay.prioritization.importance", ["from 0 to 1"]),
    (["spec.replay.rateLimiter.samplesPerInsert=-1"], "spec.replay.rateLimiter.samplesPerInsert", ["from 0"]),
    (["spec.replay.rateLimiter.minSize=100"], "spec.replay.rateLimiter.minSize", ["batchSize (here 128)"]),
    (
        ["spec.replay.rateLimiter.errorBuffer=599"],
        "spec.replay.rateLimiter.errorBuffer",
        ["max(2 * max(1, samplesPerInsert) * chunkLength, batchSize) samples (here 600)", "wait for each other"],
    ),
    (
        ["spec.replay.rateLimiter.errorBuffer=700", "spec.algorithm.batchSize=701"],
        "spec.replay.rateLimiter.errorBuffer",
        ["(here 701)"],
    ),
    (
        ["spec.replay.rateLimiter.errorBuffer=1000", "spec.replay.shards=2"],
        "spec.replay.rateLimiter.errorBuffer",
        ["(here 1,200)", "shards * max"],
    ),
    (["spec.actors.envsPerActor=4096"], "spec.replay.capacity", ["(here 204,800)", "one chunk for each environment"]),
    (
        ["spec.replay.capacity=8000", "spec.replay.shards=200"],
        "spec.replay.shards",
        ["at most 160"],
    ),
    (["spec.learner.processes=2"], "spec.learner.processes", ["at most replay.shards", "shards of its own"]),
    (
        ["spec.learner.processes=3", "spec.replay.shards=3"],
        "spec.learner.processes",
        ["a divisor of batchSize", "an equal part"],
    ),
    (
        ["spec.learner.processes=2", "spec.replay.shards=2", "spec.environment.centreInput=true"],
        "spec.environment.centreInput",
        ["false with learner.processes"],
    ),
    (
        ["spec.learner.processes=2", "spec.replay.shards=2", "spec.earlyStopping.onNonFiniteLoss=RestoreAndContinue"],
        "spec.earlyStopping.onNonFiniteLoss",
        ["Fail or Ignore with learner.processes"],
    ),
    (
        [
            "spec.algorithm={type: PPO, batchSize: 48}",
            "spec.replay=null",
            "spec.actors={replicas: 6}",
            "spec.learner.processes=4",
        ],
        "spec.learner.processes",
        ["an unroll of each environment"],
    ),
    (["spec.replay.redis.persistence.mode=AOF"], "spec.replay.redis.persistence.mode", ["Snapshot", "AppendOnly"]),
    (
        ["spec.replay.redis.external.url=redis://me:word@host:6379"],
        "spec.replay.redis.external.url",
        ["rediss://", "without a user"],
    ),
    (
        ["spec.replay.redis.external.url=redis://host?password=word"],
        "spec.replay.redis.external.url",
        ["without a user"],
    ),
    (
        ["spec.replay.redis.external.url=redis://host:6379/cache"],  # a client would take database 0
        "spec.replay.redis.external.url",
        ["redis://HOST:PORT/DATABASE"],
    ),
    (["spec.replay.redis.external.url=redis:///0"], "spec.replay.redis.external.url", ["redis://HOST:PORT/DATABASE"]),
    (["spec.replay.redis.external={secretRef: {name: a}}"], "spec.replay.redis.external.url", ["required"]),
    # roles
    (["spec.actors.replicas=0"], "spec.actors.replicas", ["at least 1 without autoscaling"]),
    (["spec.actors.replicas=[1]"], "spec.actors.replicas", ["[1]", "integer"]),
    (["spec.learner.resources.requests.cpu=lots"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.resources.requests={cpu: -0.5}"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.resources.requests={cpu: 1e300}"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.resources.requests={cpu: true}"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.resources.requests={cpu: false}"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.resources.requests={cpu: {}}"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.resources.requests={cpu: {a: 1}}"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.resources.requests={cpu: []}"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.resources.requests={cpu: [1]}"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.accelerator.resourceName=a/b/c"], "spec.learner.accelerator.resourceName", ["nvidia.com/gpu"]),
    (["spec.learner.accelerator.count=-1"], "spec.learner.accelerator.count", ["integer from 0"]),
    (["spec.learner.accelerator.count=8"], "spec.learner.accelerator.count", ["0 or 1", "idle"]),
    (["spec.learner.resources.limits={nvidia.com/gpu: 2}"], "spec.learner.accelerator.count", ["0 or 1", "idle"]),
    (["spec.learner.accelerator={count: 1, onMissing: Warn}"], "spec.learner.accelerator.onMissing", ["Fail, UseCPU"]),
    (
        ["spec.learner.accelerator.onMissing=Fail"],
        "spec.learner.accelerator.onMissing",
        ["beside count", "none can be"],
    ),
    (["spec.learner.accelerator.device=GPU"], "spec.learner.accelerator.device", ["Auto, Accelerator"]),
    (
        ["spec.inference.accelerator={count: 0, device: Accelerator}"],
        "spec.inference.accelerator.device",
        ["only with a device", "count 0"],
    ),
    (["spec.actors.placement={nodeSelector: {a: b}}"], "spec.actors.placement", ["unknown field"]),
    (["spec.actors.tolerations=[Exists]"], "spec.actors.tolerations[0]", ["'Exists'", "mapping of fields"]),
    (["spec.actors.tolerations={key: a}"], "spec.actors.tolerations", ["allowed: a list"]),
    ([f"spec.actors.tolerations=[{', '.join(['{}'] * 33)}]"], "spec.actors.tolerations", ["at most 32", "33"]),
    (["spec.learner.podTemplate=[]"], "spec.learner.podTemplate", ["mapping of fields"]),
    (["spec.learner.affinity={}"], "spec.learner.affinity", ["write spec.learner.podTemplate.spec.affinity instead"]),
    (["spec.learner.nodeSelector={zone: 1}"], "spec.learner.nodeSelector.zone", ["a label or annotation"]),
    (["spec.replay.env=[{value: b}]"], "spec.replay.env[0].name", ["required", "Name of the variable"]),
    (["spec.replay.env=[{name: A}, {name: A}]"], "spec.replay.env[1].name", ["'A'", "each name once"]),
    (["spec.learner.spot=true"], "spec.learner.spot", ["unknown field"]),
    (["spec.actors.spot=yes please"], "spec.actors.spot", ["true or false"]),
    (["spec.evaluator.returnBounds=[21, -21]"], "spec.evaluator.returnBounds", ["[low, high] with low below high"]),
    (["spec.evaluator.returnBounds=[21]"], "spec.evaluator.returnBounds", ["at least 2"]),
    (
        ["spec.evaluator.enabled=false", "spec.evaluator.triggerReturn=3"],
        "spec.evaluator.triggerReturn",
        ["evaluator.enabled"],
    ),
    # autoscaling and scheduling
    (
        ["spec.autoscaling.minReplicas=5", "spec.autoscaling.maxReplicas=4"],
        "spec.autoscaling.minReplicas",
        ["at most maxReplicas (4)"],
    ),
    (["spec.autoscaling.signal=SamplesPerInsert"], "spec.autoscaling.signal", ["unknown field"]),
    (
        ["spec.autoscaling.mode=Internal", "spec.replay.rateLimiter.samplesPerInsert=0"],
        "spec.autoscaling.mode",
        ["External or Disabled", "no number of actors", "samplesPerInsert"],
    ),
    (["spec.autoscaling.behavior={}"], "spec.autoscaling.behavior", ["removed; a decision adds as many again or 4"]),
    (["spec.monitoring.metricsPort=80"], "spec.monitoring.metricsPort", ["from 1,024 to 65,535"]),
    (["spec.monitoring.metricsPort=5551"], "spec.monitoring.metricsPort", ["outside 5551 to 5556"]),
    # the end of a job
    (["spec.successPolicy.targetReturn={}"], "spec.successPolicy.targetReturn.value", ["required", "Mean return"]),
    (["spec.successPolicy.targetReturn.value='18'"], "spec.successPolicy.targetReturn.value", ["'18'", "finite"]),
    (
        ["spec.successPolicy.targetReturn.value=18", "spec.evaluator.enabled=false"],
        "spec.successPolicy.targetReturn",
        ["evaluator.enabled"],
    ),
    (["spec.successPolicy.metric={value: 1}"], "spec.successPolicy.metric.name", ["required", "Name of a number"]),
    (
        ["spec.successPolicy.metric={name: is_success}"],
        "spec.successPolicy.metric.value",
        ["required", "Mean of a full evaluation"],
    ),
    (["spec.successPolicy.metric={name: _x, value: 1}"], "spec.successPolicy.metric.name", ["does not begin with _"]),
    (
        ['spec.successPolicy.metric={name: "two\\nlines", value: 1}'],
        "spec.successPolicy.metric.name",
        ["printable ASCII"],
    ),
    (
        ["spec.successPolicy.metric={name: is_success, value: 1}", "spec.evaluator.enabled=false"],
        "spec.successPolicy.metric",
        ["evaluator.enabled"],
    ),
    (["spec.earlyStopping.plateau={}", "spec.evaluator.enabled=false"], "spec.earlyStopping.plateau", ["evalReturn"]),
    (["spec.successPolicy.rawFrames=0"], "spec.successPolicy.rawFrames", ["integer from 1"]),
    (["spec.successPolicy.envFrames=1000"], "spec.successPolicy.envFrames", ["unknown field"]),
    (["spec.earlyStopping.plateau.metric=evalReturn"], "spec.earlyStopping.plateau.metric", ["unknown field"]),
    (["spec.earlyStopping.valueLoss.factor=1"], "spec.earlyStopping.valueLoss.factor", ["above 1"]),
    (
        ["spec.earlyStopping.trainingReturn.windowRawFrames=0"],
        "spec.earlyStopping.trainingReturn.windowRawFrames",
        ["from 1"],
    ),
    ([f"{ENVIRONMENT}.encoder={{}}"], f"{ENVIRONMENT}.encoder.file", ["required"]),
    ([f"{ENVIRONMENT}.encoder.file=policy.pt"], f"{ENVIRONMENT}.encoder.file", ["'policy.pt'", ".safetensors"]),
    (["spec.activeDeadlineSeconds=0"], "spec.activeDeadlineSeconds", ["integer from 1"]),
    (["spec.checkpoint.storage={}"], "spec.checkpoint.storage", ["exactly one"]),
    (
        ["spec.checkpoint.storage={persistentVolumeClaim: {claimName: a}, objectStore: {url: 's3://b'}}"],
        "spec.checkpoint.storage",
        ["exactly one"],
    ),
    (
        ["spec.checkpoint.storage={persistentVolumeClaim: {claimName: a, subPath: ../b}}"],
        "spec.checkpoint.storage.persistentVolumeClaim.subPath",
        ["without '..'"],
    ),
    (["spec.checkpoint.include=[Replay]"], "spec.checkpoint.include", ["Learner always"]),
    (["spec.checkpoint.include=[Learner, Learner]"], "spec.checkpoint.include", ["each entry once"]),
    (["spec.checkpoint.include=[Learner, Replay, Replay]"], "spec.checkpoint.include", ["at most 2 entries"]),
    (["spec.checkpoint.restoreFrom=newest"], "spec.checkpoint.restoreFrom", ["Latest"]),
    (["spec.tracking={secretRef: {name: keys}}"], "spec.tracking", ["wandb: {}", "or mlflow"]),
    (["spec.tracking.wandb.project=team/pong"], "spec.tracking.wandb.project", ["without '/'"]),
    (["spec.tracking.mlflow={experiment: pong}"], "spec.tracking.mlflow.uri", ["required"]),
    (["spec.tracking.mlflow.uri=mlflow:5000"], "spec.tracking.mlflow.uri", ['such as "http://mlflow:5000"']),
    (["spec.tracking.mlflow.uri='http://me:secret@mlflow:5000'"], "spec.tracking.mlflow.uri", ["without credentials"]),
    (["spec.failurePolicy.rules.bad-config.action=Retry"], "spec.failurePolicy.rules[0].action", ["FailJob"]),
    (
        ["spec.failurePolicy.rules[0].onExitCodes.values=[256]"],
        "spec.failurePolicy.rules[0].onExitCodes.values[0]",
        ["0 to 255"],
    ),
    (
        ["spec.failurePolicy.rules[0].onExitCodes.values=[]"],
        "spec.failurePolicy.rules[0].onExitCodes.values",
        ["at least 1"],
    ),
    (["spec.failurePolicy.rules[0].onExitCodes="], "spec.failurePolicy.rules[0]", ["exactly one of onExitCodes"]),
    (
        [
            "spec.failurePolicy.rules=[{name: a, onPodConditions: [{type: X}], action: Ignore}, "
            "{name: a, onPodConditions: [{type: Z}], action: Ignore}]"
        ],
        "spec.failurePolicy.rules[1].name",
        ["each name once"],
    ),
    # overrides themselves
    (["actors.replicas"], "--set", ["path=value", "actors.replicas or spec.actors.replicas"]),
    (["spec.actors.replicas=[1"], "--set", ["not valid YAML"]),
    (
        ["spec.failurePolicy.rules[7].action=Ignore"],
        "spec.failurePolicy.rules[7].action",
        ["an index below 1", "bad-config"],
    ),
    (["spec.environment.id.x=1"], "spec.environment.id.x", ["field of an object"]),
    (["spec.algorithm.gamma=.nan"], "--set", ["finite"]),
]

BROKEN_IMPALA: list[tuple[list[str], str, list[str]]] = [
    (["spec.learner.processes=2"], "spec.learner.processes", ["at most actors.replicas", "unrolls of its own"]),
    (["spec.replay={}"], "spec.replay", ["not allowed with IMPALA and PPO", "store none"]),
    (
        ["spec.algorithm={type: PPO}", "spec.replay={}"],
        "spec.replay",
        ["not allowed with IMPALA and PPO", "store none"],
    ),
    ([f"{APEX}={{}}"], "spec.algorithm", ["IMPALA", "remove apeXDQN"]),
    (["spec.algorithm.ppo={}"], "spec.algorithm", ["IMPALA", "remove ppo"]),
    (["spec.algorithm.type=PPO"], "spec.algorithm", ["PPO", "remove impala"]),
    ([f"{QUEUE}.capacity=31"], f"{QUEUE}.capacity", ["at least batchSize (32)", "whole batch"]),
    (
        [f"{ENVIRONMENT}.atari.lifeLoss=EndsEpisode", "spec.algorithm.recurrent=LSTM"],
        f"{ENVIRONMENT}.atari.lifeLoss",
        ["Ignore", "clear the memory in training"],
    ),
    (
        [f"{ENVIRONMENT}.centreInput=true", "spec.algorithm.normalizeObservations=true"],
        f"{ENVIRONMENT}.centreInput",
        ["normalizeObservations", "both would subtract a mean"],
    ),
    ([f"{QUEUE}.capacity=16", "spec.algorithm.batchSize=16.5"], "spec.algorithm.batchSize", ["16.5", "integer from 1"]),
    ([f"{QUEUE}.overflow=Drop"], f"{QUEUE}.overflow", ["Block, DropOldest"]),
    (
        [f"{QUEUE}.maxPolicyLagUpdates=4"],
        f"{QUEUE}.maxPolicyLagUpdates",
        ["publishInterval (here 5)"],
    ),
    (["spec.actors.replicas=200"], f"{QUEUE}.maxPolicyLagUpdates", ["(here 54)"]),
    (
        ["spec.autoscaling={mode: Internal, guards: {maxPolicyLagUpdates: 51}}"],
        "spec.autoscaling.guards.maxPolicyLagUpdates",
        ["at most unrollQueue.maxPolicyLagUpdates (here 50)"],
    ),
    (
        ["spec.autoscaling={mode: Internal, guards: {maxPolicyLagUpdates: 3}}"],
        "spec.autoscaling.guards.maxPolicyLagUpdates",
        ["target.queueUtilizationPercent (here 4)"],
    ),
    (
        ["spec.actors.inference=Central", "spec.inference.maxBatchSize=7"],
        "spec.inference.maxBatchSize",
        ["(here 8)", "no room"],
    ),
    (
        [f"{ENVIRONMENT}.maxFailuresPer10000Steps=9"],
        f"{ENVIRONMENT}.maxFailuresPer10000Steps",
        ["removed; it is always 10"],
    ),
    (["spec.inference.replicas=2"], "spec.inference.replicas", ["0 with actors.inference: Local", "Central"]),
    ([f"{IMPALAS}.batchsize=2"], f"{IMPALAS}.batchsize", ["unknown field", "'spec.algorithm.batchSize'"]),
    (["spec.algorithm.learningRateFinal=0.5"], "spec.algorithm.learningRateFinal", ["at most learningRate (0.0006)"]),
    (["spec.algorithm.nStep=3"], "spec.algorithm.nStep", ["IMPALA has no such parameter; ApeXDQN and SAC have"]),
    ([f"{IMPALAS}.cClip=1.5"], f"{IMPALAS}.cClip", ["at most rhoClip (1)"]),
    (["spec.algorithm.minibatches=0"], "spec.algorithm.minibatches", ["an integer from 1 to 4,096"]),
    (
        ["spec.algorithm.minibatches=5"],
        "spec.algorithm.minibatches",
        ["a divisor of batchSize unrolls", "(of 32)"],
    ),
    (
        ["spec.algorithm={type: PPO, minibatches: 7, batchSize: 16, unrollLength: 20}"],
        "spec.algorithm.minibatches",
        ["batchSize * unrollLength steps (of 320)"],
    ),
    (
        ["spec.algorithm={type: PPO, minibatches: 40, batchSize: 16, recurrent: LSTM}"],
        "spec.algorithm.minibatches",
        ["(of 16)", "unrolls"],
    ),
    (
        [
            "spec.algorithm={type: PPO, batchSize: 2, unrollLength: 8, minibatches: 16}",
            "spec.actors.envsPerActor=1",
        ],
        "spec.algorithm.minibatches",
        ["two steps or more", "advantage of one step is 0"],
    ),
    (
        ["spec.algorithm={type: PPO, separateCritic: true, recurrent: LSTM}"],
        "spec.algorithm.separateCritic",
        ["false with recurrent: LSTM", "share the memory"],
    ),
    (
        ["spec.algorithm.separateCritic=true", "spec.algorithm.recurrent=LSTM"],
        "spec.algorithm.separateCritic",
        ["false with recurrent: LSTM"],
    ),
    (
        ["spec.algorithm={type: PPO, batchSize: 16}", "spec.actors.replicas=3", "spec.actors.envsPerActor=8"],
        "spec.algorithm.batchSize",
        ["(here 24)", "played for nothing"],
    ),
    (
        [
            "spec.algorithm={type: PPO, batchSize: 7}",
            "spec.actors.envsPerActor=8",
            "spec.autoscaling.mode=Internal",
        ],
        "spec.algorithm.batchSize",
        ["at least envsPerActor with autoscaling (here 8)"],
    ),
    (
        ["spec.algorithm={type: PPO, learningRateFinal: 1}"],
        "spec.algorithm.learningRateFinal",
        ["at most learningRate (0.0003)"],
    ),
    (
        ["spec.algorithm={type: PPO, learningRateFinal: 1e-5}"],
        "spec.algorithm.learningRateFinal",
        ["learningRateDecaySteps"],
    ),
    (
        ["spec.algorithm={type: SAC}", "spec.environment.actions=Clipped"],
        "spec.environment.actions",
        ["'Clipped'", "Squashed, or nothing, with SAC"],
    ),
    (
        ["spec.algorithm={type: SAC, learningRateFinal: 1}"],
        "spec.algorithm.learningRateFinal",
        ["at most learningRate (0.0003)"],
    ),
    (
        ["spec.algorithm={type: SAC, chunkLength: 4, nStep: 5}"],
        "spec.algorithm.nStep",
        ["at most chunkLength"],
    ),
    (
        ["spec.algorithm={type: SAC}", "spec.replay={capacity: 200}"],
        "spec.replay.rateLimiter.minSize",
        ["batchSize (here 256)"],
    ),
    (
        ["spec.algorithm={type: SAC}", "spec.replay={rateLimiter: {errorBuffer: 300}}"],
        "spec.replay.rateLimiter.errorBuffer",
        ["(here 5,120)"],
    ),
    (
        ["spec.algorithm={type: SAC, targetUpdateTau: 0, targetUpdateInterval: 0}"],
        "spec.algorithm.targetUpdateInterval",
        ["1 or more"],
    ),
    (["spec.algorithm={type: PPO, ppo: {maxPolicyLag: 2}}"], "spec.algorithm.ppo.maxPolicyLag", ["0 to 1"]),
    ([f"{IMPALAS}.weightsRefreshSteps=21"], f"{IMPALAS}.weightsRefreshSteps", ["at most unrollLength (20)"]),
    (["spec.algorithm.learningRateFinal=1e-5"], "spec.algorithm.learningRateFinal", ["learningRateDecaySteps"]),
    (
        ["spec.actors.inference=Central", f"{IMPALAS}.weightsRefreshSteps=4"],
        f"{IMPALAS}.weightsRefreshSteps",
        ["1 or nothing with actors.inference: Central"],
    ),
]
BROKEN_PRESET: list[tuple[list[str], str, list[str]]] = [
    (["spec.preset="], "spec", [NOTHING_TO_START_FROM]),
    (["spec.preset=", "spec.algorithm.type=IMPALA"], "spec", [NOTHING_TO_START_FROM]),
    (["spec.preset=pongVTrace", "spec.algorithm.gamma=0.9"], "spec.preset", ["did you mean 'PongVTrace'"]),
    (
        ["spec.preset=", "spec.algorithm.gamma=0.9", f"{ENVIRONMENT}.atari.frameSize=42"],
        "spec",
        [NOTHING_TO_START_FROM],
    ),
    # what the preset's algorithm has no use for
    (["spec.algorithm={type: Custom, custom: {factory: 'm:f'}}"], "spec.algorithm.type", ["IMPALA", "PongVTrace"]),
    # beside a field that is wrong by itself, the preset's values still count
    (["spec.algorithm.batchSize=many"], "spec.algorithm.batchSize", ["'many'", "integer from 1"]),
    ([f"{APEX}.double=false"], "spec.algorithm", ["IMPALA", "remove apeXDQN"]),
    (["spec.preset=PongApeX", f"{IMPALAS}.cClip=0.9"], "spec.algorithm", ["ApeXDQN", "remove impala"]),
    (["spec.preset=CartPoleIMPALA", "spec.replay={}"], "spec.replay", ["not allowed with IMPALA and PPO"]),
    # what the preset does not say
    (
        ["spec.preset=ImpalaAtari", "spec.successPolicy.targetReturn={}"],
        "spec.successPolicy.targetReturn.value",
        ["required", "Mean return"],
    ),
    # another environment than the preset's: its target and its deadline are not for that
    (
        [f"{ENVIRONMENT}.id=ALE/Breakout-v5"],
        "spec.successPolicy",
        ["required: targetReturn, metric", "PongVTrace", "ALE/Pong-v5"],
    ),
    (
        [f"{ENVIRONMENT}.id=ALE/Breakout-v5", "spec.successPolicy.targetReturn.windowEvaluations=2"],
        "spec.successPolicy.targetReturn.value",
        ["required", "Mean return"],
    ),
    # what may not be taken away from it, and what is missing then
    (["spec.presetWithout=[environment.id]"], "spec.presetWithout[0]", ["'environment.id'", "what a preset says"]),
    (["spec.presetWithout=[evaluator.trigger]"], "spec.presetWithout[0]", ["'evaluator.trigger'"]),
    (["spec.presetWithout=evaluator"], "spec.presetWithout", ["a list"]),
    (["spec.presetWithout=[evaluator, evaluator]"], "spec.presetWithout", ["once"]),
    (
        ["spec.presetWithout=[successPolicy]", "spec.successPolicy.targetReturn.windowEvaluations=2"],
        "spec.successPolicy.targetReturn.value",
        ["required", "Mean return"],
    ),
    # what stands against a value of the preset
    ([f"{QUEUE}.maxPolicyLagUpdates=151"], f"{QUEUE}.maxPolicyLagUpdates", ["(here 152)"]),
    ([f"{ENVIRONMENT}.atari.fullActionSpace=true"], f"{ENVIRONMENT}.actions", ["not both"]),
    (["spec.algorithm.learningRateFinal=0.002"], "spec.algorithm.learningRateFinal", ["at most learningRate (0.001)"]),
]

CASES = [
    *((BASE, *case) for case in BROKEN),
    *((IMPALA, *case) for case in BROKEN_IMPALA),
    *((PRESET, *case) for case in BROKEN_PRESET),
]

BY_PYTHON_ALONE = [
    case
    for case in CASES
    if (case[2].startswith(f"{ENVIRONMENT}.actions") and not {"'0,2'", "'squashed'"} & set(case[3]))
    or case[2] == "spec.actors.env[0]"
    or any("a text at" in word for word in case[3])
    or (case[2] == "spec.successPolicy.targetReturn.value" and "required" in case[3][0])
]
"""The cases of a list of actions, of which a server sees no more than that it is one, of core's types, and of a target's value,
which a preset may have (`NOT_IN_CEL`)."""
_OF_OVERRIDES = ("--set", "spec.failurePolicy.rules[7].action", f"{ENVIRONMENT}.id.x")
OF_THE_MANIFEST = [case for case in CASES if case[2] not in _OF_OVERRIDES and case not in BY_PYTHON_ALONE]
"""The cases about a manifest that a server has to refuse: without those of overrides themselves."""

# Good manifests with nulls under known names, which count as not given. (base, override)
NULLS: list[tuple[Path, str]] = [
    (BASE, "spec.actors=null"),
    (BASE, "spec.actors={replicas: null, nodeSelector: {zone: null}, tolerations: null, env: null}"),
    (BASE, "spec.learner={resources: {limits: {cpu: null}}, podTemplate: {metadata: {labels: null}}}"),
    (BASE, "spec.failurePolicy.rules[0].roles=null"),
    (BASE, "metadata.labels=null"),
    (BASE, "spec.preset="),
    (BASE, "spec.algorithm.impala=null"),
    (BASE, f"{APEX}={{double: null}}"),
    (IMPALA, "spec.autoscaling={target: null, guards: null}"),
    (IMPALA, "spec.replay=null"),
    (IMPALA, f"{QUEUE}=null"),
    (PRESET, "spec.algorithm={type: null, impala: null}"),
]

# Good manifests with numbers in the forms that people write. (base, override)
NUMBERS: list[tuple[Path, str]] = [
    (BASE, "spec.algorithm.gamma=1"),
    (BASE, "spec.algorithm.learningRate=1e-4"),
    (BASE, "spec.algorithm.batchSize=256.0"),
    (BASE, "spec.replay.capacity=2e6"),
    (BASE, "spec.replay.rateLimiter.samplesPerInsert=8"),
    (BASE, "spec.replay.rateLimiter.errorBuffer=1e4"),
    (BASE, "spec.successPolicy={rawFrames: 2e8, targetReturn: {value: -18}}"),
    (BASE, "spec.learner.resources.requests={cpu: 2, memory: 4Gi}"),
    (BASE, "spec.learner.resources={requests: {cpu: 0.5}, limits: {cpu: 1.5, memory: 4e9}}"),
    (IMPALA, "spec.algorithm.learningRateDecaySteps=5e7"),
    (PRESET, "spec.evaluator={triggerReturn: 11.5, returnBounds: [-21, 21.0]}"),
]

# Good manifests in which a default follows from what is written. (base, overrides, the field, its value)
_PPO = ["spec.algorithm={type: PPO, batchSize: 16, unrollLength: 20}"]
FOLLOWING: list[tuple[Path, list[str], str, Any]] = [
    (
        BASE,
        ["spec.algorithm.chunkLength=101", "spec.replay.rateLimiter.minSize=128"],
        "replay.rateLimiter.errorBuffer",
        1212,
    ),
    (
        BASE,
        ["spec.replay.shards=2", "spec.algorithm.chunkLength=200", "spec.replay.rateLimiter.minSize=7999"],
        "replay.rateLimiter.errorBuffer",
        4800,
    ),
    (BASE, ["spec.algorithm.batchSize=4801"], "replay.rateLimiter.errorBuffer", 4801),
    (
        BASE,
        ["spec.replay.rateLimiter.samplesPerInsert=0.5", "spec.algorithm.batchSize=801"],
        "replay.rateLimiter.errorBuffer",
        801,
    ),
    (BASE, ["spec.replay.rateLimiter.minSize=", "spec.replay.capacity=20000"], "replay.rateLimiter.minSize", 20_000),
    (
        BASE,
        ["spec.replay.rateLimiter.minSize=", "spec.algorithm.batchSize=60000"],
        "replay.rateLimiter.minSize",
        60_000,
    ),
    (BASE, ["spec.algorithm.targetUpdateTau=0.01"], "algorithm.targetUpdateInterval", 0),
    (BASE, ["spec.algorithm.learningRate=0.01"], "algorithm.learningRateFinal", 0.01),
    (IMPALA, [f"{QUEUE}=", "spec.algorithm.batchSize=100"], "algorithm.impala.unrollQueue.capacity", 200),
    (BASE, ["spec.actors={inference: Central, envsPerActor: 65}"], "inference.maxBatchSize", 65),
    (BASE, ["spec.actors.replicas=120"], "autoscaling.maxReplicas", 120),
    (BASE, ["spec.autoscaling={mode: Internal, minReplicas: 150}"], "autoscaling.maxReplicas", 150),
    (BASE, ["spec.autoscaling={mode: Internal, minReplicas: 4}"], "actors.replicas", 1),
    (BASE, ["spec.autoscaling={mode: External, maxReplicas: 4}", "spec.actors.replicas=9"], "actors.replicas", 9),
    (BASE, ["spec.learner.resources.limits={nvidia.com/gpu: 1}"], "learner.accelerator.count", 1),
    (
        BASE,
        ["spec.inference={resources: {limits: {amd.com/gpu: 1}}, accelerator: {resourceName: amd.com/gpu}}"],
        "inference.accelerator.count",
        1,
    ),
    (
        BASE,
        ["spec.learner={resources: {limits: {nvidia.com/gpu: 1}}, accelerator: {count: 0}}"],
        "learner.accelerator.count",
        0,
    ),
    (IMPALA, [f"{QUEUE}.maxPolicyLagUpdates=100"], "autoscaling.guards.maxPolicyLagUpdates", 80),
    (BASE, [], "autoscaling.guards.maxPolicyLagUpdates", 400),
    (IMPALA, _PPO, "autoscaling.guards.maxPolicyLagUpdates", 32),
    (IMPALA, [*_PPO, "spec.actors.envsPerActor=4"], "autoscaling.maxReplicas", 4),
    (IMPALA, [*_PPO, "spec.algorithm.learningRate=0.01"], "algorithm.learningRateFinal", 0.01),
    (IMPALA, ["spec.algorithm={type: PPO}"], "algorithm.batchSize", 16),
    # what of a preset gives way to what is written
    (PRESET, ["spec.evaluator.enabled=false"], "successPolicy.targetReturn", None),
    (PRESET, ["spec.actors.inference=Central"], "algorithm.impala.weightsRefreshSteps", 1),
    # what is taken away from it by name: a value, a section
    (PRESET, ["spec.presetWithout=[successPolicy.targetReturn]"], "successPolicy.targetReturn", None),
    (PRESET, ["spec.presetWithout=[successPolicy.targetReturn]"], "activeDeadlineSeconds", 3600),
    (PRESET, ["spec.presetWithout=[evaluator, environment.actions]"], "evaluator.triggerReturn", None),
    (PRESET, ["spec.presetWithout=[algorithm.impala, environment.actions]"], "environment.actions", "Clipped"),
    (
        PRESET,
        ["spec.presetWithout=[algorithm.learningRate, algorithm.learningRateFinal]"],
        "algorithm.learningRate",
        0.0006,
    ),
    (PRESET, ["spec.presetWithout=[evaluator]", "spec.evaluator.triggerReturn=3"], "evaluator.triggerReturn", 3),
    (PRESET, ["spec.presetWithout=[replay]"], "environment.atari.frameSize", 42),
    # what of it is about its environment, beside another one, beside its own, and where it was published for many
    *(
        (PRESET, [*BREAKOUT, "spec.activeDeadlineSeconds=60"], field, value)
        for field, value in OF_NO_ENVIRONMENT.items()
    ),
    (PRESET, [*BREAKOUT, "spec.successPolicy.rawFrames=9"], "activeDeadlineSeconds", None),
    (PRESET, [*BREAKOUT, "spec.earlyStopping.plateau={}"], "algorithm.learningRate", 0.001),
    (PRESET, [f"{ENVIRONMENT}.id=ale_py:ALE/Pong-v5"], "environment.actions", [0, 2, 3]),
    (PRESET, ["spec.preset=ImpalaAtari", *BREAKOUT], "environment.atari.lifeLoss", "EndsEpisode"),
]

# Good manifests at the very edge of a rule; one step further is refused. (base, overrides, override that goes too far)
EDGES: list[tuple[Path, list[str], str]] = [
    (IMPALA, [*_PPO, "spec.actors.envsPerActor=8", "spec.actors.replicas=2"], "spec.actors.replicas=3"),
    (
        IMPALA,
        [*_PPO, "spec.actors.envsPerActor=16", "spec.actors.replicas=5", "spec.autoscaling.mode=External"],
        "spec.actors.envsPerActor=17",
    ),
    (
        IMPALA,
        [*_PPO, "spec.algorithm.minibatches=320", "spec.algorithm.ppo.normalizeAdvantages=false"],
        "spec.algorithm.minibatches=321",
    ),
    (IMPALA, [*_PPO, "spec.algorithm.minibatches=160"], "spec.algorithm.minibatches=320"),
    (
        IMPALA,
        [*_PPO, "spec.algorithm.recurrent=LSTM", "spec.algorithm.minibatches=16"],
        "spec.algorithm.minibatches=20",
    ),
    (BASE, ["spec.replay.capacity=8000"], "spec.replay.capacity=7999"),
    (BASE, ["spec.replay.rateLimiter.minSize=128"], "spec.replay.rateLimiter.minSize=127"),
    (BASE, ["spec.replay.capacity=400", "spec.replay.rateLimiter.minSize=200"], "spec.replay.capacity=399"),
    (
        BASE,
        [
            "spec.replay.shards=3",
            "spec.replay.capacity=150",
            "spec.replay.rateLimiter.minSize=128",
            "spec.actors.envsPerActor=2",
        ],
        "spec.replay.capacity=149",
    ),
    (BASE, ["spec.replay.rateLimiter.errorBuffer=600"], "spec.replay.rateLimiter.errorBuffer=599.9"),
    (
        BASE,
        [
            "spec.replay.rateLimiter.samplesPerInsert=0.5",
            "spec.replay.rateLimiter.errorBuffer=128",
            "spec.algorithm.chunkLength=10",
        ],
        "spec.replay.rateLimiter.errorBuffer=127",
    ),
    (
        BASE,
        [
            "spec.replay.rateLimiter.samplesPerInsert=0.5",
            "spec.replay.rateLimiter.errorBuffer=140",
            "spec.algorithm.chunkLength=70",
        ],
        "spec.replay.rateLimiter.errorBuffer=139",
    ),
    (
        BASE,
        ["spec.replay.shards=2", "spec.replay.rateLimiter.errorBuffer=1200"],
        "spec.replay.rateLimiter.errorBuffer=1199",
    ),
    (
        BASE,
        ["spec.replay.shards=2", "spec.algorithm.batchSize=900", "spec.replay.rateLimiter.errorBuffer=1800"],
        "spec.replay.rateLimiter.errorBuffer=1799",
    ),
    (BASE, ["spec.algorithm.nStep=50"], "spec.algorithm.nStep=51"),
    (BASE, ["spec.algorithm.learningRateFinal=1e-4"], "spec.algorithm.learningRateFinal=1.01e-4"),
    (
        BASE,
        ["spec.algorithm.learningRateFinal=1e-5", "spec.algorithm.learningRateDecaySteps=1"],
        "spec.algorithm.learningRateDecaySteps=0",
    ),
    (BASE, ["spec.monitoring.metricsPort=5550"], "spec.monitoring.metricsPort=5551"),
    (BASE, ["spec.monitoring.metricsPort=5557"], "spec.monitoring.metricsPort=5556"),
    (BASE, [f"{ENVIRONMENT}.maxEpisodeRawFrames=4"], f"{ENVIRONMENT}.maxEpisodeRawFrames=3"),
    (
        BASE,
        ["spec.autoscaling.mode=Internal", "spec.replay.rateLimiter.samplesPerInsert=0.01"],
        "spec.replay.rateLimiter.samplesPerInsert=0",
    ),
    (
        BASE,
        ["spec.actors={inference: Central, envsPerActor: 64}", "spec.inference.maxBatchSize=64"],
        "spec.actors.envsPerActor=65",
    ),
    (BASE, ["spec.learner.accelerator.count=1"], "spec.learner.accelerator.count=2"),
    (IMPALA, [f"{QUEUE}.capacity=32"], f"{QUEUE}.capacity=31"),
    (IMPALA, [f"{QUEUE}.maxPolicyLagUpdates=5"], f"{QUEUE}.maxPolicyLagUpdates=4"),
    (BASE, ["spec.learner.accelerator={count: 0, onMissing: UseCPU}"], "spec.learner.accelerator.count="),
    (BASE, ["spec.learner.accelerator={count: 1, device: Accelerator}"], "spec.learner.accelerator.count=0"),
    (IMPALA, ["spec.actors.replicas=184"], "spec.actors.replicas=185"),
    (IMPALA, ["spec.actors={replicas: 368, envsPerActor: 3}"], "spec.actors.replicas=369"),
    (
        IMPALA,
        [
            "spec.algorithm.epochs=2",
            "spec.algorithm.minibatches=4",
            "spec.algorithm.prefetchBatches=2",
            "spec.algorithm.publishInterval=16",
        ],
        "spec.algorithm.publishInterval=17",
    ),
    (
        IMPALA,
        ["spec.autoscaling={mode: Internal, guards: {maxPolicyLagUpdates: 50}}"],
        "spec.autoscaling.guards.maxPolicyLagUpdates=51",
    ),
    (
        IMPALA,
        ["spec.autoscaling={mode: Internal, guards: {maxPolicyLagUpdates: 4}}"],
        "spec.autoscaling.guards.maxPolicyLagUpdates=3",
    ),
    (
        IMPALA,
        [
            "spec.autoscaling={mode: Internal, maxReplicas: 200, target: {queueUtilizationPercent: 90}}",
            "spec.actors.replicas=142",
        ],
        f"{QUEUE}.maxPolicyLagUpdates=49",
    ),
    (IMPALA, [f"{IMPALAS}.cClip=0.5", f"{IMPALAS}.rhoClip=0.5"], f"{IMPALAS}.rhoClip=0.49"),
    (IMPALA, [f"{IMPALAS}.weightsRefreshSteps=20"], f"{IMPALAS}.weightsRefreshSteps=21"),
    (
        IMPALA,
        ["spec.actors.inference=Central", f"{IMPALAS}.weightsRefreshSteps=1"],
        f"{IMPALAS}.weightsRefreshSteps=2",
    ),
    (
        IMPALA,
        [
            "spec.actors.inference=Central",
            "spec.preset=PongVTrace",
            f"{QUEUE}.maxPolicyLagUpdates=1000",
        ],
        f"{IMPALAS}.weightsRefreshSteps=8",
    ),
]
EXAMPLES = paths.MANIFESTS
CLUSTER = next(file for file in EXAMPLES if file.stem == "pong-apex-cluster")


def document(file: Path, overrides: list[str] | tuple[str, ...] = ()) -> dict[str, Any]:
    """The document as written, and overridden."""
    written = parse_document(file.read_bytes(), file.name)
    return apply_overrides(written, read_overrides(overrides, written))


def in_force(job: RLJob) -> dict[str, Any]:
    """The document with every field written: the preset's values and all defaults."""
    return parse_document(dump_manifest(job).encode(), "the job in force")


def effective(file: Path, overrides: list[str] | tuple[str, ...] = ()) -> dict[str, Any]:
    """The same of a manifest whose fields break rules between them. Where one is wrong by itself, it stands in a good job."""
    return copy.deepcopy(_effective(file, tuple(overrides)))


@cache
def _effective(file: Path, overrides: tuple[str, ...]) -> dict[str, Any]:
    written = without_nulls(document(file, overrides))
    try:
        return in_force(
            with_defaults(RLJob.model_validate(with_preset(written), by_alias=True, by_name=False), written)
        )
    except ValidationError:
        job = in_force(load_manifest(file))
        return apply_overrides(job, read_overrides(overrides, job))
