"""A network of a policy that was trained elsewhere, without its heads, as a function from pictures to features."""

from __future__ import annotations

from typing import Any, Final

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
from rljob.envs import EnvironmentProblem
from rljob.envs.latents import EncoderFile
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
