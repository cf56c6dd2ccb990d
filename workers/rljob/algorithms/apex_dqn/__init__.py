"""ApeXDQN as the manifest knows it."""

from rljob.algorithms.apex_dqn.parameters import ApeXDQNParameters
from rljob.algorithms.apex_dqn.presets import PRESETS
from rljob.api.declaration import BuiltIn
from rljob.api.networks import OF_TRANSITIONS

DECLARED = BuiltIn(
    name="ApeXDQN",
    block="apeXDQN",
    about="Hyper-parameters of ApeXDQN alone (Horgan et al., 2018, https://arxiv.org/abs/1803.00933).",
    parameters=ApeXDQNParameters,
    networks=OF_TRANSITIONS,
    takes=frozenset({"choices", "masks"}),
    from_replay=True,
    elsewhere=("DQN",),
    presets=PRESETS,
)
