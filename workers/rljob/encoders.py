"""Making a job's environments, behind its frozen encoder where it has one: what actors step, and what is scored and shown.

A network of a policy that was trained elsewhere, without its heads, as a function from pictures to features.
"""

from dataclasses import replace
from typing import Any, Final

import gymnasium
import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from rljob.algorithms.built_in import BUILT_IN
from rljob.algorithms.registry import algorithm
from rljob.algorithms.shapes import first_difference, shapes_of, words_of
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import EnvironmentParameters
from rljob.api.networks import NetworkProblem
from rljob.envs import (
    EnvironmentProblem,
    describe_environment,
    make_restarting_environment,
    make_single_environment,
)
from rljob.envs.base import StepResult, VectorEnvironment
from rljob.envs.latents import EncoderFile, read_encoder
from rljob.envs.spec import EnvironmentSpec
from rljob.errors import named
from rljob.loading import short

_TRUNK: Final = ("mean", "convolutions.", "more_convolutions.", "dense.")
_LARGEST: Final = float(np.finfo(np.float16).max)


class FrozenEncoder:
    """The trunk in ``file`` for an environment that shows ``spec``. Not thread-safe. Raises EnvironmentProblem where it does not
    fit: which tensor has which shape, and which would be right."""

    def __init__(self, file: EncoderFile, spec: EnvironmentSpec) -> None:
        problem = f"environment.encoder.file: {file.path} does not fit {short(spec.id)!r}: "
        try:
            name, of = file.policy["algorithm"], file.policy["algorithmParameters"]
            if name not in BUILT_IN or ":" in str(of.get("network")):  # a file of weights brings no code
                raise NetworkProblem(
                    f"it is of {short(name)} with {short(str(of.get('network')))}, which is not built in"
                )
            method = algorithm(name)
            params = method.parameters.model_validate(of)
            played = {
                name: value for name, value in file.policy["environment"].items() if name not in ("id", "encoder")
            }
            network: Any = method.build(spec, params, EnvironmentParameters.model_validate(played))
        except ValidationError as error:
            odd = ".".join(map(str, error.errors()[0]["loc"]))
            raise EnvironmentProblem(f"{problem}it is of another release, as to its parameter {odd}") from None
        except (KeyError, TypeError, AttributeError, NetworkProblem) as error:
            raise EnvironmentProblem(f"{problem}{named(error)}") from None
        if not isinstance(network, FrameNetwork):
            raise EnvironmentProblem(f"{problem}a network of {method.name} has no trunk of its own")
        wanted = {name: shape for name, shape in shapes_of(network).items() if name.startswith(_TRUNK)}
        held = {name: shape for name, shape in file.shapes.items() if name.startswith(_TRUNK)}
        if (differs := first_difference(wanted, held)) is not None:
            name, right, came = differs
            raise EnvironmentProblem(f"{problem}{name} is {words_of(came)}, but has to be {words_of(right)}")
        state = {name: each for name, each in safetensors.torch.load_file(str(file.path)).items() if name in wanted}
        if broken := [name for name, each in state.items() if not each.isfinite().all()]:
            raise EnvironmentProblem(f"{problem}{broken[0]} holds numbers that are not finite")
        network.load_state_dict(state, strict=False)
        self._network = network.eval().requires_grad_(False)

    def __call__(self, observation: NDArray[Any]) -> NDArray[np.float16]:
        """Features float16 [N, 1, W] of pictures [N, S, *F]."""
        with torch.inference_mode():
            features = self._network.features(torch.as_tensor(np.ascontiguousarray(observation)))
            latents: NDArray[np.float16] = features.clamp_(-_LARGEST, _LARGEST).half().numpy()
        return latents[:, None]


def make_encoded_vector(spec: EnvironmentSpec, parameters: EnvironmentParameters, *rest: Any) -> VectorEnvironment:
    """As ``make_restarting_environment``, whose further arguments are ``rest``."""
    if parameters.encoder is None:
        return make_restarting_environment(spec, parameters, *rest)
    shown, plain, encoder = _encoder(spec.id, parameters, spec)
    return EncodedVector(make_restarting_environment(shown, plain, *rest), spec, encoder)


def make_encoded_environment(
    environment_id: str, parameters: EnvironmentParameters, *, spec: EnvironmentSpec | None = None, **rest: Any
) -> gymnasium.Env[Any, Any]:
    """As ``make_single_environment``, whose further arguments are ``rest``."""
    if parameters.encoder is None:
        return make_single_environment(environment_id, parameters, spec=spec, **rest)
    shown, plain, encoder = _encoder(environment_id, parameters, spec)
    return EncodedEnvironment(make_single_environment(environment_id, plain, spec=shown, **rest), encoder)


def check_encoder(environment_id: str, parameters: EnvironmentParameters) -> None:
    """Raise EnvironmentProblem where the job's encoder does not fit its environment."""
    if parameters.encoder is not None:
        _encoder(environment_id, parameters, None)


def _encoder(
    environment_id: str, parameters: EnvironmentParameters, spec: EnvironmentSpec | None
) -> tuple[EnvironmentSpec, EnvironmentParameters, FrozenEncoder]:
    """What the environment shows itself, the parameters to make that with, and the encoder, which has to be the one that
    ``spec`` was described with: what is stored and learned is of that one."""
    assert parameters.encoder is not None
    plain = parameters.model_copy(update={"encoder": None})
    shown, file = describe_environment(environment_id, plain), read_encoder(parameters.encoder.file)
    if spec is not None and spec.encoder != file.sha256:
        raise EnvironmentProblem(
            f"environment.encoder.file: {file.path} was changed since the job began: its sha256 is {file.sha256}, that "
            f"of the job's encoder {spec.encoder}; put that file back, or begin a new job"
        )
    return shown, plain, FrozenEncoder(file, shown)


class EncodedVector:
    """A vector environment that shows features of what ``inner``, which it owns, shows."""

    def __init__(self, inner: VectorEnvironment, spec: EnvironmentSpec, encoder: FrozenEncoder) -> None:
        self.spec, self.num_envs = spec, inner.num_envs
        self._inner, self._encoder = inner, encoder

    def reset(self, seed: int | None = None) -> NDArray[np.float16]:
        return self._encoder(self._inner.reset(seed))

    def step(self, actions: NDArray[np.int64], controls: NDArray[np.float32] | None = None) -> StepResult:
        result = self._inner.step(actions, controls)
        observation, final = self._encoder(result.observation), None
        if result.final_observation is not None:
            ended = result.terminated | result.truncated
            final = np.zeros_like(observation)
            final[ended] = self._encoder(result.final_observation[ended])
        return replace(result, observation=observation, final_observation=final)

    def close(self) -> None:
        self._inner.close()


class EncodedEnvironment(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The same of one environment."""

    def __init__(self, env: gymnasium.Env[Any, Any], encoder: FrozenEncoder) -> None:
        super().__init__(env)
        self._encoder = encoder
        shape = encoder(np.zeros((1, *env.observation_space.shape), env.observation_space.dtype))[0].shape  # type: ignore[misc]
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float16)

    def observation(self, observation: Any) -> NDArray[np.float16]:
        latents: NDArray[np.float16] = self._encoder(observation[None])[0]
        return latents
