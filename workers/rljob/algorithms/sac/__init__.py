"""SAC as the manifest knows it."""

from rljob.algorithms.sac.parameters import SACParameters
from rljob.algorithms.sac.presets import PRESETS
from rljob.api.declaration import BuiltIn, Computed
from rljob.api.environment import EnvironmentSource
from rljob.api.networks import OF_TRANSITIONS
from rljob.api.replay import Prioritization, RateLimiter, ReplaySpec

DECLARED = BuiltIn(
    name="SAC",
    block="sac",
    about="Hyper-parameters of SAC alone (Haarnoja et al., 2018, https://arxiv.org/abs/1812.05905).",
    parameters=SACParameters,
    networks=OF_TRANSITIONS,
    takes=frozenset({"controls", "controls alone", "critic"}),
    from_replay=True,
    elsewhere=("SoftActorCritic",),
    defaults={
        (EnvironmentSource, "actions"): "Squashed",
        (ReplaySpec, "capacity"): 1_000_000,
        (Prioritization, "exponent"): 0.0,
        (RateLimiter, "samples_per_insert"): Computed(
            "batchSize, an update a step", lambda spec: float(spec.algorithm.parameters.batch_size)
        ),
        (RateLimiter, "min_size"): 5_000,
    },
    presets=PRESETS,
)
