"""What an environment is, as far as networks, chunks and checkpoints are concerned."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rljob.api import EnvironmentParameters
    from rljob.api.environment import EnvironmentSource

# Neither the backend, nor how a network scales its input, nor the limit on failures changes what the environment is.
_NOT_PART_OF_THE_ENVIRONMENT = {"backend", "centre_input", "input_scale", "max_failures_per_10000_steps"}
_HANDED = "environment.json"
_PACKAGES: tuple[str, ...] = ("gymnasium", "ale-py", "numpy", "opencv-python-headless")


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """Shapes and identity of an environment; equal fingerprints mean interchangeable experience.

    frame_shape: F*, e.g. (84, 84) for Atari, (4,) for CartPole. frame_dtype: "uint8" or "float32".
    stack: S, frames in one observation. raw_frames_per_step: the frame skip, 1 where there is none.
    """

    id: str
    frame_shape: tuple[int, ...]
    frame_dtype: str
    stack: int
    num_actions: int
    raw_frames_per_step: int
    fingerprint: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> EnvironmentSpec:
        """Read back ``dataclasses.asdict`` as JSON keeps it. Raises KeyError and TypeError for anything else."""
        return cls(**{**document, "frame_shape": tuple(document["frame_shape"])})

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """(S, *F*): the shape of one environment's observation."""
        return (self.stack, *self.frame_shape)

    def input_scale(self, env_params: EnvironmentParameters) -> float:
        """The factor on a network's input: ``spec.environment.inputScale``, or 1/255 of bytes and 1 of floats."""
        return env_params.input_scale or (1.0 / 255.0 if self.frame_dtype == "uint8" else 1.0)

    @property
    def frame_bytes(self) -> int:
        """Memory of one frame F*, uncompressed."""
        return math.prod(self.frame_shape) * (1 if self.frame_dtype == "uint8" else 4)


def hand_over(run_dir: Path, source: EnvironmentSource, spec: EnvironmentSpec) -> None:
    """Keep in ``run_dir`` what ``source`` was found to be, for roles that need no more. Raises OSError."""
    document = {"of": source.model_dump(mode="json"), "spec": dataclasses.asdict(spec)}
    (run_dir / _HANDED).write_text(json.dumps(document, indent=2) + "\n")


def handed_over(run_dir: Path, source: EnvironmentSource) -> EnvironmentSpec | None:
    """What was kept of ``source`` in ``run_dir``; None where nothing was, or of another one."""
    try:
        document = json.loads((run_dir / _HANDED).read_text())
    except (OSError, ValueError):
        return None
    return EnvironmentSpec.of(document["spec"]) if document["of"] == source.model_dump(mode="json") else None


def fingerprint(environment_id: str, parameters: EnvironmentParameters, *, reward_clipping: bool) -> str:
    """sha256 (hex) over the id, the parameters that shape experience, and the packages' versions.

    ``reward_clipping``: what the parameter comes to for this environment; whether it was given or follows makes no difference.
    """
    left_out, packages = set(_NOT_PART_OF_THE_ENVIRONMENT), _PACKAGES
    if parameters.backend == "EnvPool":  # it has another environment of the same id
        left_out, packages = left_out - {"backend"}, (*packages, "envpool")
    if not parameters.register_functions:  # a field that was added later: what was learned before keeps its fingerprint
        left_out.add("register_functions")
    described = {
        "id": environment_id,
        "parameters": {
            **parameters.model_dump(exclude=left_out),
            "reward_clipping": reward_clipping,
        },
        "packages": {name: _version(name) for name in packages},
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
