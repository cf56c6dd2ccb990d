"""Vector environments that a user's own factory gives where it takes ``num_envs``.

One that takes ``device`` as well gives a ``gymnasium.vector.VectorEnv`` that follows the SAME_STEP rule and whose arrays speak
DLPack, whichever framework they are of, such as a simulator on a GPU. Here it is found and made; what reads its arrays is an
actor's business (``rljob.actor.device_environment``), so that this room needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode, VectorEnv

from rljob.envs.base import EnvironmentProblem
from rljob.envs.contained import contained
from rljob.envs.spec import EnvironmentSpec
from rljob.envs.target import UserFactory, clips_rewards, resolve
from rljob.loading import PLUGIN_FAILURES, short, told

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters


@contained()
def user_vector(target: UserFactory, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """``num_envs`` environments of ``target``. Raises EnvironmentProblem when it fails or gives anything else."""
    try:
        vector = target.make(num_envs=num_envs, **target.kwargs)
    except PLUGIN_FAILURES as error:
        raise EnvironmentProblem(f"environment {short(target.id)!r}: the factory failed: {told(error)}") from error
    if not isinstance(vector, VectorEnv) or vector.num_envs != num_envs:
        raise EnvironmentProblem(
            f"environment {short(target.id)!r}: with num_envs={num_envs} the factory returned {type(vector).__name__}; it "
            f"must return a gymnasium.vector.VectorEnv of {num_envs}"
        )
    return vector


@dataclass(frozen=True, slots=True)
class DeviceVector:
    """A vector environment on a device, as its author gives it. ``spec``: its observations have a stack of one frame.

    ``actions``: for each of our actions the one of ``env``, empty for the same. ``reward_clipping``: whether training sees
    rewards clipped to [-1, 1].
    """

    spec: EnvironmentSpec
    env: VectorEnv[Any, Any, Any]
    actions: tuple[int, ...]
    reward_clipping: bool


def make_device_vector(spec: EnvironmentSpec, parameters: EnvironmentParameters, num_envs: int) -> DeviceVector | None:
    """``num_envs`` copies of the environment of ``spec`` on the device that its factory chooses; None for every other kind,
    and where ``backend`` or ``maxEpisodeSteps`` asks for plain environments. Raises EnvironmentProblem where it cannot be used as
    it is."""
    target, limited = resolve(spec.id, parameters), parameters.max_episode_steps
    if (
        not isinstance(target, UserFactory)
        or not target.on_device
        or parameters.backend not in ("Auto", "Native")
        or limited
    ):
        return None
    if spec.stack > 1:
        raise EnvironmentProblem(
            f"environment {short(spec.id)!r}: frames are not stacked on a device; write frameStack: 1, and put what was "
            "seen before into the observation itself"
        )
    if len(spec.observation) > 1 or spec.observation[0].sizes or len(spec.action_sizes) != 1 or spec.controls:
        raise EnvironmentProblem(
            f"environment {short(spec.id)!r}: on a device its observations have to be one Box, and its actions one Discrete; "
            "backend: Sync steps plain environments of any spaces"
        )
    env = user_vector(target, num_envs)
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.SAME_STEP:
        env.close()
        raise EnvironmentProblem(
            f"environment {short(spec.id)!r}: on a device it must reset with SAME_STEP, as its metadata's autoreset_mode says, "
            f"but that is {getattr(mode, 'value', mode)!r}"
        )
    return DeviceVector(spec, env, parameters.action_subset, clips_rewards(target.id, parameters))
