"""Making a job's environments, behind its frozen encoder where it has one: what actors step, and what is scored and shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rljob.api import EnvironmentParameters
from rljob.encoders.frozen import FrozenEncoder
from rljob.envs import (
    EnvironmentProblem,
    describe_environment,
    make_restarting_environment,
    make_single_environment,
)
from rljob.envs.base import StepResult, VectorEnvironment
from rljob.envs.latents import read_encoder
from rljob.envs.spec import EnvironmentSpec


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
