"""What an environment is whose picture a frozen network turns into features: read from that network's file, without torch."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from rljob.envs.base import EnvironmentProblem
from rljob.envs.spec import EnvironmentSpec, Leaf
from rljob.loading import short

_FIELD = "environment.encoder.file"


@dataclass(frozen=True, slots=True)
class EncoderFile:
    """A policy as `rljob export --format safetensors` writes it. ``policy``: its document; ``shapes`` of its tensors; ``width``:
    features that its trunk has of a picture."""

    path: Path
    sha256: str
    policy: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    width: int


def read_encoder(path: str) -> EncoderFile:
    """Raises EnvironmentProblem where it is missing, or no such file."""
    try:
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        with safe_open(path, framework="numpy") as file:
            policy = json.loads((file.metadata() or {}).get("policy", "{}"))
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - it is no dict
    except OSError as error:
        raise EnvironmentProblem(f"{_FIELD}: {path} can't be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError) as error:
        raise EnvironmentProblem(f"{_FIELD}: {path} is no safetensors file: {error}") from None
    dense = {
        int(name.split(".")[1]): shape for name, shape in shapes.items() if re.fullmatch(r"dense[.]\d+[.]weight", name)
    }
    linear = [shape[0] for _, shape in sorted(dense.items()) if len(shape) == 2]
    if not linear or not isinstance(policy, dict) or not policy:
        why = "no dense layers" if not linear else "not what it is a policy of"
        raise EnvironmentProblem(
            f"{_FIELD}: {path} holds {why}; `rljob export RUN --format safetensors` writes one that does"
        )
    return EncoderFile(Path(path), digest, policy, shapes, linear[-1])


def encoded(spec: EnvironmentSpec, path: str) -> EnvironmentSpec:
    """What the environment that was described as ``spec`` is behind the network in ``path``. Raises EnvironmentProblem."""
    if len(spec.observation) > 1 or spec.observation[0].role != "image":
        raise EnvironmentProblem(
            f"environment {short(spec.id)!r}: environment.encoder takes one picture, but it shows {'; '.join(spec.lines)}"
        )
    file = read_encoder(path)
    latents = Leaf((), "vector", (file.width,), "float16", column="latents")
    digest = hashlib.sha256(f"{spec.fingerprint} {file.sha256}".encode()).hexdigest()
    return replace(spec, observation=(latents,), stack=1, fingerprint=digest, encoder=file.sha256)
