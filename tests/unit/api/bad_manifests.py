"""A table of bad manifests: every rule broken once, by overrides of a good one."""

from __future__ import annotations

from pathlib import Path

BASE = Path(__file__).parent / "base.yaml"
IMPALA = Path(__file__).parent / "impala.yaml"
PARAMETER = "spec.algorithm.parameters"
ENVIRONMENT = "spec.environment.parameters"

# (overrides that break it, path of the problem, words that its text must contain)
BROKEN: list[tuple[list[str], str, list[str]]] = [
    # names of things
    (["metadata.name=Pong"], "metadata.name", ["'Pong'", "lower-case", "1 to 45"]),
    (["metadata.name=" + "x" * 46], "metadata.name", ["1 to 45"]),
    (["metadata.name=1pong"], "metadata.name", ["a letter first"]),
    (["metadata.lables={}"], "metadata.lables", ["unknown field", "'labels'"]),
    (["spec.algoritm.name=x"], "spec.algoritm", ["unknown field", "'algorithm'"]),
    (["spec.replay.capcity=5"], "spec.replay.capcity", ["unknown field", "'capacity'"]),
    (["spec.replay.rate_limiter.minSize=5"], "spec.replay.rate_limiter", ["'rateLimiter'"]),
    # nothing under a name that is none: a null, and a removal by --set
    (["spec.actors={replcas: }"], "spec.actors.replcas", ["got null", "unknown field", "'replicas'"]),
    (["spec.actors.replcas="], "spec.actors.replcas", ["unknown field", "'replicas'"]),
    (["spec.suspended=null"], "spec.suspended", ["unknown field", "'suspend'"]),
    (["metadata.lables=null"], "metadata.lables", ["unknown field", "'labels'"]),
    (["spec.learner.resources.limit=null"], "spec.learner.resources.limit", ["unknown field", "'limits'"]),
    (["spec.failurePolicy.rules[0].roels="], "spec.failurePolicy.rules[0].roels", ["unknown field", "'roles'"]),
    (
        ["spec.actors.placement.tolerations=[{key: a, efect: }]"],
        "spec.actors.placement.tolerations[0].efect",
        ["'effect'"],
    ),
    (["spec.imagePullSecrets=[null]"], "spec.imagePullSecrets[0]", ["got null", "mapping of fields"]),
    (["spec.algorithm.parameters=[{name: gamma, value: }]"], f"{PARAMETER}.gamma.value", ["required"]),
    (["spec.algorithm.parameters=[{name: gamma, vlaue: , value: '0.9'}]"], f"{PARAMETER}.gamma.vlaue", ["'value'"]),
    (["spec.replay="], "spec.replay", ["required with algorithm ApeXDQN"]),
    (["spec.queue.capacity=64"], "spec.queue", ["not allowed with algorithm ApeXDQN", "spec.replay"]),
    (["spec.algorithm.name=ApexDQN"], "spec.algorithm.name", ["'ApexDQN'", "ApeXDQN, IMPALA"]),
    (["spec.algorithm.name="], "spec.algorithm.name", ["required"]),
    (["spec.environment.id="], "spec.environment.id", ["required", "Gymnasium"]),
    (["spec.environment.id='two words'"], "spec.environment.id", ["'two words'", "module:factory"]),
    (["spec.managedBy=me"], "spec.managedBy", ["rljob.dev/operator"]),
    (["spec.image='a b'"], "spec.image", ["container image"]),
    # algorithm parameters
    ([f"{PARAMETER}.gama=0.9"], f"{PARAMETER}.gama", ["unknown parameter", "'gamma'"]),
    ([f"{PARAMETER}.n_step=3"], f"{PARAMETER}.n_step", ["unknown parameter", "'nStep'"]),
    (["spec.algorithm.parameters.a$b=3"], f"{PARAMETER}.a$b.name", ["a parameter's name"]),
    ([f"{PARAMETER}.wings=3"], f"{PARAMETER}.wings", ["unknown parameter", "known here", "gamma"]),
    ([f"{PARAMETER}.gamma=1.5"], f"{PARAMETER}.gamma", ["'1.5'", "from 0 to 1"]),
    ([f"{PARAMETER}.gamma=nan"], f"{PARAMETER}.gamma", ["'nan'", "from 0 to 1"]),
    ([f"{PARAMETER}.gamma=high"], f"{PARAMETER}.gamma", ["'high'", "from 0 to 1"]),
    ([f"{PARAMETER}.gradientClipNorm=inf"], f"{PARAMETER}.gradientClipNorm", ["finite", "0 upwards"]),
    ([f"{PARAMETER}.nStep=0"], f"{PARAMETER}.nStep", ["integer from 1 to 100"]),
    ([f"{PARAMETER}.nStep=2.5"], f"{PARAMETER}.nStep", ["integer from 1 to 100"]),
    ([f"{PARAMETER}.nStep=60"], f"{PARAMETER}.nStep", ["at most chunkLength", "chunk of 50"]),
    ([f"{PARAMETER}.batchSize=-1"], f"{PARAMETER}.batchSize", ["integer from 1 to 65,536"]),
    ([f"{PARAMETER}.learningRate=0"], f"{PARAMETER}.learningRate", ["above 0 to 1"]),
    ([f"{PARAMETER}.learningRateFinal=0.5"], f"{PARAMETER}.learningRateFinal", ["at most learningRate (0.0001)"]),
    ([f"{PARAMETER}.learningRateFinal=1e-5"], f"{PARAMETER}.learningRateFinal", ["learningRateDecaySteps"]),
    ([f"{PARAMETER}.optimizer=adam"], f"{PARAMETER}.optimizer", ["Adam, RMSProp or CentredRMSProp"]),
    ([f"{PARAMETER}.optimizerEpsilon=0"], f"{PARAMETER}.optimizerEpsilon", ["above 0"]),
    ([f"{PARAMETER}.targetUpdateTau=-.1"], f"{PARAMETER}.targetUpdateTau", ["from 0 to 1"]),
    (
        [f"{PARAMETER}.targetUpdateTau=0.01", f"{PARAMETER}.targetUpdateInterval=100"],
        f"{PARAMETER}.targetUpdateInterval",
        ["nothing beside targetUpdateTau (0.01)", "remove one"],
    ),
    ([f"{PARAMETER}.double=1"], f"{PARAMETER}.double", ["true or false"]),
    ([f"{PARAMETER}.network=ResNet"], f"{PARAMETER}.network", ["Nature", "Compact", "MLP"]),
    ([f"{PARAMETER}.preset=Best"], f"{PARAMETER}.preset", ["PongQuickstart"]),
    ([f"{PARAMETER}.evaluationWeightsDecay=1"], f"{PARAMETER}.evaluationWeightsDecay", ["0 to below 1"]),
    ([f"{PARAMETER}.seed=-1"], f"{PARAMETER}.seed", ["integer from 0"]),
    ([f"{PARAMETER}.chunkLength=100000"], f"{PARAMETER}.chunkLength", ["integer from 1 to 1,000"]),
    # environment parameters
    ([f"{ENVIRONMENT}.framesize=42"], f"{ENVIRONMENT}.framesize", ["'frameSize'"]),
    ([f"{ENVIRONMENT}.frameSize=8"], f"{ENVIRONMENT}.frameSize", ["integer from 16 to 512"]),
    ([f"{ENVIRONMENT}.actions=0,2,2"], f"{ENVIRONMENT}.actions", ["different action numbers"]),
    ([f"{ENVIRONMENT}.actions=up"], f"{ENVIRONMENT}.actions", ["different action numbers"]),
    ([f"{ENVIRONMENT}.inputScale=0"], f"{ENVIRONMENT}.inputScale", ["finite number above 0"]),
    ([f"{ENVIRONMENT}.stickyActionProbability=1"], f"{ENVIRONMENT}.stickyActionProbability", ["0 to below 1"]),
    ([f"{ENVIRONMENT}.lifeLoss=Ends"], f"{ENVIRONMENT}.lifeLoss", ["EndsEpisode"]),
    ([f"{ENVIRONMENT}.kwargs=[1]"], f"{ENVIRONMENT}.kwargs", ["JSON object"]),
    ([f"{ENVIRONMENT}.kwargs={{"], f"{ENVIRONMENT}.kwargs", ["JSON object"]),
    ([f"{ENVIRONMENT}.maxEpisodeRawFrames=2"], f"{ENVIRONMENT}.maxEpisodeRawFrames", ["frameSkip"]),
    (
        [f"{ENVIRONMENT}.actions=0,1", f"{ENVIRONMENT}.fullActionSpace=true"],
        f"{ENVIRONMENT}.actions",
        ["not both"],
    ),
    # replay
    (["spec.replay.capacity=0"], "spec.replay.capacity", ["integer from 1"]),
    (["spec.replay.capacity='many'"], "spec.replay.capacity", ["'many'", "integer"]),
    (["spec.replay.capacity='200000'"], "spec.replay.capacity", ["'200000'", "integer"]),
    (["spec.replay.capacity=true"], "spec.replay.capacity", ["True", "integer"]),
    (["spec.replay.capacity=4000"], "spec.replay.rateLimiter.minSize", ["8000", "at most replay.capacity (4,000)"]),
    (["spec.replay.capacityBytes=4GB"], "spec.replay.capacityBytes", ["'4GB'", "4Gi"]),
    (["spec.replay.capacityBytes=-1"], "spec.replay.capacityBytes", ["quantity from 0"]),
    (["spec.replay.shards=0"], "spec.replay.shards", ["integer from 1"]),
    (["spec.replay.sampling=index"], "spec.replay.sampling", ["Index, Frames", "did you mean 'Index'"]),
    (["spec.replay.prioritization.exponent=1.1"], "spec.replay.prioritization.exponent", ["1.1", "from 0 to 1"]),
    (["spec.replay.prioritization.exponent=.nan"], "spec.replay.prioritization.exponent", ["nan", "from 0 to 1"]),
    (["spec.replay.prioritization.importance=x"], "spec.replay.prioritization.importance", ["from 0 to 1"]),
    (["spec.replay.rateLimiter.samplesPerInsert=-1"], "spec.replay.rateLimiter.samplesPerInsert", ["from 0"]),
    (["spec.replay.rateLimiter.minSize=100"], "spec.replay.rateLimiter.minSize", ["batchSize (128)"]),
    (
        ["spec.replay.rateLimiter.errorBuffer=599"],
        "spec.replay.rateLimiter.errorBuffer",
        ["at least 600", "2 * max(1, samplesPerInsert 6) * chunkLength 50", "wait for each other"],
    ),
    (
        ["spec.replay.rateLimiter.errorBuffer=700", f"{PARAMETER}.batchSize=701"],
        "spec.replay.rateLimiter.errorBuffer",
        ["at least 701", "batchSize 701"],
    ),
    (
        ["spec.replay.rateLimiter.minSize=9000", f"{PARAMETER}.batchSize=8000"],
        "spec.replay.rateLimiter.errorBuffer",
        ["the default, from minSize"],
    ),
    (
        ["spec.replay.rateLimiter.errorBuffer=1000", "spec.replay.shards=2"],
        "spec.replay.rateLimiter.errorBuffer",
        ["at least 1200", "2 shards"],
    ),
    (["spec.actors.envsPerActor=4096"], "spec.replay.capacity", ["at least 204,800", "4,096 environments"]),
    (
        ["spec.replay.capacity=8000", "spec.replay.shards=200"],
        "spec.replay.shards",
        ["at most 160", "40 transitions"],
    ),
    (["spec.replay.redis.persistence.mode=AOF"], "spec.replay.redis.persistence.mode", ["Snapshot", "AppendOnly"]),
    # roles
    (["spec.actors.replicas=0"], "spec.actors.replicas", ["at least 1 without autoscaling"]),
    (["spec.actors.replicas=1.5"], "spec.actors.replicas", ["integer from 0"]),
    (["spec.actors.replicas=[1]"], "spec.actors.replicas", ["[1]", "integer"]),
    (["spec.actors=3"], "spec.actors", ["mapping of fields"]),
    (["spec.learner.resources.requests.cpu=lots"], "spec.learner.resources.requests.cpu", ["500m"]),
    (["spec.learner.accelerator.resourceName=a/b/c"], "spec.learner.accelerator.resourceName", ["nvidia.com/gpu"]),
    (["spec.learner.accelerator.count=-1"], "spec.learner.accelerator.count", ["integer from 0"]),
    (["spec.learner.accelerator.count=8"], "spec.learner.accelerator.count", ["0 or 1", "the others of 8", "idle"]),
    (["spec.learner.disruptionBudget=Yes"], "spec.learner.disruptionBudget", ["Protected, None"]),
    (
        ["spec.actors.placement.tolerations=[{operator: Exists, key: a, value: b}]"],
        "spec.actors.placement.tolerations[0].value",
        ["Exists"],
    ),
    (["spec.actors.placement.tolerations=[{}]"], "spec.actors.placement.tolerations[0].key", ["required", "Equal"]),
    (["spec.evaluator.enabled=maybe"], "spec.evaluator.enabled", ["true or false"]),
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
    (
        ["spec.autoscaling={mode: Internal, minReplicas: 2}"],
        "spec.actors.replicas",
        ["from autoscaling.minReplicas (2) to autoscaling.maxReplicas (100)"],
    ),
    (["spec.autoscaling.signal=LearnerQueueDepth"], "spec.autoscaling.signal", ["SamplesPerInsert with algorithm"]),
    (
        ["spec.autoscaling.mode=Internal", "spec.replay.rateLimiter.samplesPerInsert=0"],
        "spec.autoscaling.mode",
        ["External or Disabled", "no number of actors", "samplesPerInsert"],
    ),
    (["spec.autoscaling.trimTimeConstantSeconds=59"], "spec.autoscaling.trimTimeConstantSeconds", ["from 60"]),
    (
        ["spec.autoscaling.missingMetrics={action: Fallback, fallback: {replicas: 500}}"],
        "spec.autoscaling.missingMetrics.fallback.replicas",
        ["maxReplicas (100)"],
    ),
    (["spec.autoscaling.rateWindowSeconds=5"], "spec.autoscaling.rateWindowSeconds", ["samplePeriodSeconds (15)"]),
    (
        ["spec.autoscaling.behavior.scaleUp.policies=[{type: Pods, value: 0, periodSeconds: 15}]"],
        "spec.autoscaling.behavior.scaleUp.policies[0].value",
        ["integer from 1"],
    ),
    (
        ["spec.scheduling.gang={scheduler: Volcano, minActors: 2}"],
        "spec.scheduling.gang.minActors",
        ["at most actors.replicas (1)"],
    ),
    (["spec.monitoring.metricsPort=80"], "spec.monitoring.metricsPort", ["from 1,024 to 65,535"]),
    # the end of a job
    (["spec.successPolicy.targetReturn={}"], "spec.successPolicy.targetReturn.value", ["required", "Mean return"]),
    (["spec.successPolicy.targetReturn.value=.inf"], "spec.successPolicy.targetReturn.value", ["finite"]),
    (
        ["spec.successPolicy.targetReturn.value=18", "spec.evaluator.enabled=false"],
        "spec.successPolicy.targetReturn",
        ["evaluator.enabled"],
    ),
    (["spec.earlyStopping.plateau={}", "spec.evaluator.enabled=false"], "spec.earlyStopping.plateau", ["evalReturn"]),
    (["spec.successPolicy.envFrames=0"], "spec.successPolicy.envFrames", ["integer from 1"]),
    (["spec.activeDeadlineSeconds=0"], "spec.activeDeadlineSeconds", ["integer from 1"]),
    (["spec.suspend=true"], "spec.suspend", ["checkpoint.storage", "onSuspend: Skip"]),
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
    (["spec.failurePolicy.rules.bad-config.action=Retry"], "spec.failurePolicy.rules[0].action", ["FailJob"]),
    (
        ["spec.failurePolicy.rules[0].onExitCodes.values=[0]"],
        "spec.failurePolicy.rules[0].onExitCodes.values[0]",
        ["1 to 255"],
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
            "{name: a, onPodConditions: [{type: Y}], action: Ignore}]"
        ],
        "spec.failurePolicy.rules[1].name",
        ["each name once"],
    ),
    # overrides themselves
    (["spec.actors.replicas"], "--set", ["spec.path=value"]),
    (["actors.replicas=3"], "--set", ["spec.path=value"]),
    (["spec..replicas=3"], "--set", ["spec.path=value"]),
    (["spec.actors.replicas=[1"], "--set", ["not valid YAML"]),
    (["spec.failurePolicy.rules[7].action=Ignore"], "--set", ["an index below 1", "bad-config"]),
    (["spec.environment.id.x=1"], "--set", ["field of an object"]),
    ([f"{PARAMETER}.gama="], "--set", ["nothing to remove", "gamma, batchSize"]),
]

BROKEN_IMPALA: list[tuple[list[str], str, list[str]]] = [
    (["spec.replay={}"], "spec.replay", ["not allowed with algorithm IMPALA", "spec.queue"]),
    (["spec.queue="], "spec.queue", ["required with algorithm IMPALA"]),
    (["spec.queue.capacity=31"], "spec.queue.capacity", ["at least batchSize (32 unrolls)", "whole batch"]),
    (["spec.queue.overflow=Drop"], "spec.queue.overflow", ["Block, DropOldest"]),
    (
        ["spec.queue.maxPolicyLagUpdates=4"],
        "spec.queue.maxPolicyLagUpdates",
        ["at least 5 = ((queue 64 + actors 1 * 8 on the way) / batchSize 32 + prefetchBatches 1) * 1 updates a batch"],
    ),
    (["spec.actors.replicas=200"], "spec.queue.maxPolicyLagUpdates", ["at least 54", "actors 200 * 8"]),
    (["spec.autoscaling.signal=SamplesPerInsert"], "spec.autoscaling.signal", ["LearnerQueueDepth with algorithm"]),
    (
        ["spec.autoscaling={mode: Internal, guards: {maxPolicyLagUpdates: 51}}"],
        "spec.autoscaling.guards.maxPolicyLagUpdates",
        ["at most queue.maxPolicyLagUpdates (50)"],
    ),
    (
        ["spec.autoscaling={mode: Internal, guards: {maxPolicyLagUpdates: 3}}"],
        "spec.autoscaling.guards.maxPolicyLagUpdates",
        ["at least 4 = ((queue 32 +", "queueUtilizationPercent (50)"],
    ),
    (
        ["spec.actors.inference=Central", "spec.inference.maxBatchSize=7"],
        "spec.inference.maxBatchSize",
        ["at least actors.envsPerActor (8)", "no room"],
    ),
    (
        ["spec.environment.parameters.maxFailuresPer10000Steps=-1"],
        "spec.environment.parameters.maxFailuresPer10000Steps",
        ["0 to 10,000"],
    ),
    (["spec.inference.replicas=2"], "spec.inference.replicas", ["0 with actors.inference: Local", "Central"]),
    ([f"{PARAMETER}.batchsize=2"], f"{PARAMETER}.batchsize", ["unknown parameter", "'batchSize'"]),
    ([f"{PARAMETER}.nStep=3"], f"{PARAMETER}.nStep", ["unknown parameter"]),
    ([f"{PARAMETER}.preset=ApeXAtari"], f"{PARAMETER}.preset", ["ImpalaAtari"]),
    ([f"{PARAMETER}.cClip=1.5"], f"{PARAMETER}.cClip", ["at most rhoClip (1)"]),
    ([f"{PARAMETER}.minibatches=0"], f"{PARAMETER}.minibatches", ["an integer from 1 to 4,096"]),
    (
        [f"{PARAMETER}.minibatches=5"],
        f"{PARAMETER}.minibatches",
        ["a divisor of 32 (batchSize, the unrolls of a batch)"],
    ),
    (
        [f"{PARAMETER}.minibatches=7", f"{PARAMETER}.loss=ClippedSurrogate"],
        f"{PARAMETER}.minibatches",
        ["a divisor of 640 (batchSize 32 * unrollLength 20, the steps of a batch)"],
    ),
    (
        [f"{PARAMETER}.minibatches=40", f"{PARAMETER}.loss=ClippedSurrogate", f"{PARAMETER}.recurrent=LSTM"],
        f"{PARAMETER}.minibatches",
        ["a divisor of 32", "unrolls"],
    ),
    ([f"{PARAMETER}.weightsRefreshSteps=21"], f"{PARAMETER}.weightsRefreshSteps", ["at most unrollLength (20)"]),
    (
        [f"{PARAMETER}.correctOffPolicy=false", f"{PARAMETER}.loss=ClippedSurrogate"],
        f"{PARAMETER}.correctOffPolicy",
        ["only with loss VTrace"],
    ),
    ([f"{PARAMETER}.learningRateFinal=1e-5"], f"{PARAMETER}.learningRateFinal", ["learningRateDecaySteps"]),
    (
        ["spec.actors.inference=Central", f"{PARAMETER}.weightsRefreshSteps=4"],
        "spec.actors.inference",
        ["Local beside an algorithm parameter weightsRefreshSteps other than 1", "Remove it"],
    ),
]
CASES = [(BASE, *case) for case in BROKEN] + [(IMPALA, *case) for case in BROKEN_IMPALA]

ONLY_PYTHON = (
    "spec.environment.parameters.kwargs",  # JSON in a string
    "spec.environment.parameters.actions=0,2,2",  # repeated numbers in a string
)
"""Overrides of the table that only `rljob validate` and the controller refuse (`rljob.api.cel.NOT_IN_CEL`)."""

REFUSED_BY_CLUSTER = [
    case for case in CASES if case[2] != "--set" and not any(text.startswith(ONLY_PYTHON) for text in case[1])
]
"""The cases that an API server refuses too: all but those of ``--set`` itself."""

# Good manifests with nulls under known names, which count as not given. (base, override)
NULLS: list[tuple[Path, str]] = [
    (BASE, "spec.actors=null"),
    (BASE, "spec.actors={replicas: null, placement: {nodeSelector: {zone: null}, tolerations: null}}"),
    (BASE, "spec.learner={resources: {limits: {cpu: null}}, podTemplate: {metadata: {labels: null}}}"),
    (BASE, "spec.failurePolicy.rules[0].roles=null"),
    (BASE, "metadata.labels=null"),
    (BASE, "spec.queue=null"),
    (IMPALA, "spec.autoscaling={signal: null, guards: null}"),
]

# Good manifests at the very edge of a rule; one step further is refused. (base, overrides, override that goes too far)
EDGES: list[tuple[Path, list[str], str]] = [
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
    (BASE, ["spec.replay.rateLimiter.errorBuffer='600'"], "spec.replay.rateLimiter.errorBuffer='599.9'"),
    (
        BASE,
        [
            "spec.replay.rateLimiter.samplesPerInsert='0.5'",
            "spec.replay.rateLimiter.errorBuffer='128'",
            f"{PARAMETER}.chunkLength=10",
        ],
        "spec.replay.rateLimiter.errorBuffer='127'",
    ),
    (
        BASE,
        [
            "spec.replay.rateLimiter.samplesPerInsert='0.5'",
            "spec.replay.rateLimiter.errorBuffer='140'",
            f"{PARAMETER}.chunkLength=70",
        ],
        "spec.replay.rateLimiter.errorBuffer='139'",
    ),
    (
        BASE,
        ["spec.replay.shards=2", "spec.replay.rateLimiter.errorBuffer='1200'"],
        "spec.replay.rateLimiter.errorBuffer='1199'",
    ),
    (
        BASE,
        ["spec.replay.shards=2", f"{PARAMETER}.batchSize=900", "spec.replay.rateLimiter.errorBuffer='1800'"],
        "spec.replay.rateLimiter.errorBuffer='1799'",
    ),
    (BASE, [f"{PARAMETER}.chunkLength=100", "spec.replay.rateLimiter.minSize=128"], f"{PARAMETER}.chunkLength=101"),
    (
        BASE,
        ["spec.replay.shards=2", f"{PARAMETER}.chunkLength=200", "spec.replay.rateLimiter.minSize=8000"],
        "spec.replay.rateLimiter.minSize=7999",
    ),
    (BASE, [f"{PARAMETER}.batchSize=1200", "spec.replay.rateLimiter.minSize=1201"], f"{PARAMETER}.batchSize=1201"),
    (BASE, [f"{PARAMETER}.batchSize=4800"], f"{PARAMETER}.batchSize=4801"),
    (
        BASE,
        [
            "spec.replay.rateLimiter.samplesPerInsert='0.5'",
            f"{PARAMETER}.batchSize=200",
            "spec.replay.rateLimiter.minSize=300",
        ],
        f"{PARAMETER}.batchSize=201",
    ),
    (
        BASE,
        ["spec.replay.rateLimiter.samplesPerInsert='0.5'", f"{PARAMETER}.batchSize=800"],
        f"{PARAMETER}.batchSize=801",
    ),
    (
        BASE,
        [
            "spec.replay.shards=2",
            "spec.replay.rateLimiter.samplesPerInsert='0.5'",
            f"{PARAMETER}.batchSize=400",
            "spec.replay.rateLimiter.minSize=8000",
        ],
        f"{PARAMETER}.batchSize=401",
    ),
    (
        BASE,
        ["spec.replay.shards=2", "spec.replay.rateLimiter.samplesPerInsert='2'", f"{PARAMETER}.batchSize=800"],
        f"{PARAMETER}.batchSize=801",
    ),
    (BASE, [f"{PARAMETER}.nStep=50"], f"{PARAMETER}.nStep=51"),
    (BASE, [f"{PARAMETER}.learningRateFinal=1e-4"], f"{PARAMETER}.learningRateFinal=1.01e-4"),
    (
        BASE,
        [f"{PARAMETER}.learningRateFinal=1e-5", f"{PARAMETER}.learningRateDecaySteps=1"],
        f"{PARAMETER}.learningRateDecaySteps=0",
    ),
    (BASE, [f"{ENVIRONMENT}.maxEpisodeRawFrames=4"], f"{ENVIRONMENT}.maxEpisodeRawFrames=3"),
    (
        BASE,
        ["spec.autoscaling={mode: Internal, minReplicas: 3, maxReplicas: 3}", "spec.actors.replicas=3"],
        "spec.actors.replicas=4",
    ),
    (
        BASE,
        ["spec.autoscaling={mode: External, minReplicas: 3, maxReplicas: 5}", "spec.actors.replicas=3"],
        "spec.actors.replicas=2",
    ),
    (
        BASE,
        ["spec.autoscaling={maxReplicas: 9, missingMetrics: {action: Fallback, fallback: {replicas: 9}}}"],
        "spec.autoscaling.missingMetrics.fallback.replicas=10",
    ),
    (
        BASE,
        ["spec.autoscaling={minReplicas: 2, missingMetrics: {action: Fallback, fallback: {replicas: 2}}}"],
        "spec.autoscaling.missingMetrics.fallback.replicas=1",
    ),
    (BASE, ["spec.autoscaling.rateWindowSeconds=15"], "spec.autoscaling.rateWindowSeconds=14"),
    (BASE, ["spec.scheduling.gang={scheduler: Volcano, minActors: 1}"], "spec.scheduling.gang.minActors=2"),
    (
        BASE,
        ["spec.autoscaling.mode=Internal", "spec.replay.rateLimiter.samplesPerInsert='0.01'"],
        "spec.replay.rateLimiter.samplesPerInsert='0'",
    ),
    (BASE, ["spec.actors={inference: Central, envsPerActor: 64}"], "spec.actors.envsPerActor=65"),
    (BASE, ["spec.suspend=true", "spec.checkpoint.onSuspend=Skip"], "spec.checkpoint.onSuspend=BestEffort"),
    (BASE, ["spec.learner.accelerator.count=1"], "spec.learner.accelerator.count=2"),
    (IMPALA, ["spec.queue.capacity=32"], "spec.queue.capacity=31"),
    (IMPALA, ["spec.queue.maxPolicyLagUpdates=5"], "spec.queue.maxPolicyLagUpdates=4"),
    (IMPALA, ["spec.actors.replicas=184"], "spec.actors.replicas=185"),
    (IMPALA, ["spec.actors={replicas: 368, envsPerActor: 3}"], "spec.actors.replicas=369"),
    (
        IMPALA,
        [
            f"{PARAMETER}.epochs=2",
            f"{PARAMETER}.minibatches=4",
            f"{PARAMETER}.prefetchBatches=2",
            f"{PARAMETER}.publishInterval=16",
        ],
        f"{PARAMETER}.publishInterval=17",
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
        "spec.queue.maxPolicyLagUpdates=49",
    ),
    (IMPALA, [f"{PARAMETER}.cClip=0.5", f"{PARAMETER}.rhoClip=0.5"], f"{PARAMETER}.rhoClip=0.49"),
    (IMPALA, [f"{PARAMETER}.weightsRefreshSteps=20"], f"{PARAMETER}.weightsRefreshSteps=21"),
    (
        IMPALA,
        ["spec.actors.inference=Central", f"{PARAMETER}.weightsRefreshSteps=1"],
        f"{PARAMETER}.weightsRefreshSteps=2",
    ),
    (
        IMPALA,
        [
            "spec.actors.inference=Central",
            f"{PARAMETER}.preset=PongClippedSurrogate",
            "spec.queue.maxPolicyLagUpdates=1000",
        ],
        f"{PARAMETER}.weightsRefreshSteps=8",
    ),
]
