"""A trained policy as one file for programs that have no rljob: written, read back, and compared with the policy it is of.

TorchScript and ONNX are the whole way from observations to actions: ``observations`` [N, S, *F], or one input for each column
where an environment shows several kinds of numbers (and ``memory`` float32 [N, 2, H] of a recurrent policy), to ``actions`` int64
[N], ``preferences`` float32 [N, A] (and ``memory``). safetensors holds the weights alone, under the names that the network of
``rljob`` gives them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rljob.algorithms import algorithm
from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.trunk import FrameNetwork
from rljob.choices import Choices
from rljob.envs import EnvironmentProblem
from rljob.errors import UsageError, named
from rljob.loading import short
from rljob.observation import arrays_of, each, of_columns
from rljob.policy.trained import Policy

COUNT = 64
_STEPS_APART = 4


class Samples(NamedTuple):
    """``observations`` [N, S, *F], or a dict of such, ``memory`` float32 [N, 2, H], and where they are from, in words."""

    observations: Any
    memory: NDArray[np.float32]
    origin: str


def sample(policy: Policy) -> Samples:
    """Observations of games of the policy's environment, played at random; random numbers where it can't be made or played here.
    The same at every call."""
    random = np.random.default_rng(0)
    memory = random.normal(size=(COUNT, 2, policy.memory_units)).astype(np.float32)
    try:
        return Samples(_played(policy, random), memory, policy.environment_id)
    except EnvironmentProblem as problem:
        columns = policy.stored.spec.columns
        drawn = of_columns(columns, [column.drawn(random, COUNT) for column in columns])
        return Samples(drawn, memory, f"random numbers, as {problem}")


def _played(policy: Policy, random: np.random.Generator) -> Any:
    env, spec = policy.environment(), policy.stored.spec
    try:
        observation, _ = env.reset(seed=0)
        seen = []
        for step in range(COUNT * _STEPS_APART):
            if step % _STEPS_APART == 0:
                seen.append(each(np.array, observation))
            choices = spec.choices(each(lambda of: of[None], observation))
            observation, _, terminated, truncated, _ = env.step(choices.uniform(1, random)[0])
            if terminated or truncated:
                observation, _ = env.reset()
        return each(lambda *arrays: np.stack(arrays), *seen)
    except EnvironmentProblem:
        raise
    except Exception as error:
        raise EnvironmentProblem(f"environment {short(policy.environment_id)!r} failed: {named(error)}") from error
    finally:
        env.close()


FORMAT = 1


def document(policy: Policy, form: str) -> dict[str, Any]:
    """As JSON. Names of parameters are those of a manifest (docs/api-reference.md)."""
    spec, env_params = policy.stored.spec, policy.stored.env_params
    memory = {"shape": ["N", 2, policy.memory_units], "dtype": "float32"} if policy.memory_units else None
    return {
        "format": FORMAT,
        "form": form,
        "algorithm": policy.algorithm,
        "observations": {
            "inputs": [
                {"name": name, "shape": ["N", *column.observed], "dtype": str(column.dtype)}
                for name, column in zip(_names(policy), spec.columns, strict=True)
            ],
            "leaves": [{"path": leaf.path, **dataclasses.asdict(leaf)} for leaf in spec.observation],
            "stack": spec.stack,
            "order": "oldest frame first",
            "scaling": "inside the network: frames go in as they are",
        },
        "actions": {
            "choices": list(spec.action_sizes),
            "ofTheEnvironment": list(env_params.actions) or "all, in its own order",
        },
        "memory": memory,
        "environment": {"id": spec.id, **env_params.model_dump(mode="json", by_alias=True)},
        "algorithmParameters": policy.stored.params.model_dump(mode="json", by_alias=True),
        "counters": policy.manifest.get("counters"),
        "verdict": policy.manifest.get("verdict"),
        "checkpointSha256": policy.manifest.get("sha256"),
    }


Answer = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Actions int64 [N] and preferences float32 [N, A]."""
Exported = Callable[[NDArray[Any], NDArray[np.float32]], Answer]
"""What a file answers to observations and a memory."""

SUFFIX: Final = MappingProxyType({"torchscript": ".pt", "onnx": ".onnx", "safetensors": ".safetensors"})
_ONNX_PACKAGES: Final = ("onnx", "onnxruntime", "onnxscript")


class ExportProblem(RuntimeError):
    """What was written does not act as the policy does."""


@dataclass(frozen=True, slots=True)
class Export:
    """``file`` and ``about``, what is to be known of it (JSON). ``origin``: where the ``compared`` observations are from.
    ``difference``: the largest between two preferences for the same action."""

    file: Path
    about: Path
    origin: str
    compared: int
    difference: float


def export(policy: Policy, form: str, folder: Path) -> Export:
    """Write ``folder/policy.SUFFIX`` and ``.json`` beside it; both appear only once they were checked.

    ``form``: torchscript, onnx or safetensors. Raises UsageError where a package for it is missing, and ExportProblem.
    """
    if form == "onnx" and (missing := [name for name in _ONNX_PACKAGES if find_spec(name) is None]):
        raise UsageError(
            f"--format onnx needs {', '.join(missing)}, which this install lacks: pip install 'rljob[onnx]'"
        )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"policy{SUFFIX[form]}"
    partial = folder / f".partial-{file.name}"
    samples = sample(policy)
    try:
        exported = _WRITERS[form](policy, partial, samples)
        difference = _checked(policy, exported, samples)
        about = file.with_name(f"{file.name}.json")
        checked = {"observations": len(samples.memory), "of": samples.origin, "largestDifference": difference}
        digest = hashlib.sha256(partial.read_bytes()).hexdigest()
        facts = document(policy, form) | {"sha256": digest, "checked": checked}
        about.write_text(json.dumps(facts, indent=1) + "\n")
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
    return Export(file, about, samples.origin, len(samples.memory), difference)


class Acting(nn.Module):
    """From observations to actions, as one graph of tensors: ``(*observations, memory) -> (actions, preferences, memory)``,
    one array of each column, and without ``memory`` where the policy has none."""

    def __init__(self, method: AnyAlgorithm, network: FrameNetwork, memory_units: int) -> None:
        super().__init__()
        self.network = network
        self._method, self._units = method, memory_units

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        columns = self.network.columns
        observations, *memory = of_columns(columns, given[: len(columns)]), *given[len(columns) :]
        state = memory[0] if memory else torch.zeros(given[0].shape[0], 2, self._units)
        outputs, after = self._method.infer(self.network, observations, state)
        preferences = self._method.preferences(outputs)
        answer = (self.network.choices.best(preferences), preferences)
        return (*answer, after) if memory else answer


def _torchscript(policy: Policy, file: Path, samples: Samples) -> Exported:
    with _quietly():
        jit: Any = torch.jit
        traced = jit.trace(_acting(policy), _inputs(policy, samples), check_trace=False)
        jit.save(traced, str(file))
        loaded = jit.load(str(file))

    def answer(observations: Any, memory: NDArray[np.float32]) -> Answer:
        with torch.inference_mode():
            actions, preferences, *_ = loaded(*map(torch.from_numpy, _given(policy, observations, memory)))
        return actions.numpy(), preferences.numpy()

    return answer


def _onnx(policy: Policy, file: Path, samples: Samples) -> Exported:
    import onnxruntime  # type: ignore[import-not-found]

    names = [*_names(policy), *(["memory"] if policy.memory_units else [])]
    games = torch.export.Dim("N")
    with _quietly():
        torch.onnx.export(
            _acting(policy),
            _inputs(policy, samples),
            str(file),
            input_names=names,
            output_names=["actions", "preferences", *(["memory_after"] if policy.memory_units else [])],
            dynamic_shapes=(tuple({0: games} for _ in names),),
            external_data=False,
            verbose=False,
        )
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])

    def answer(observations: Any, memory: NDArray[np.float32]) -> Answer:
        actions, preferences, *_ = session.run(
            None, dict(zip(names, _given(policy, observations, memory), strict=True))
        )
        return actions, preferences

    return answer


def _safetensors(policy: Policy, file: Path, samples: Samples) -> Exported:
    stored = policy.stored
    state = {name: tensor.contiguous() for name, tensor in stored.module.state_dict().items()}
    file.write_bytes(safetensors.torch.save(state, {"policy": json.dumps(document(policy, "safetensors"))}))
    method = algorithm(policy.algorithm)
    built = method.build(stored.spec, stored.params, stored.env_params)
    built.load_state_dict(safetensors.torch.load_file(str(file)))
    acting = Acting(method, built.eval(), policy.memory_units)

    def answer(observations: Any, memory: NDArray[np.float32]) -> Answer:
        actions, preferences, *_ = acting(*map(torch.from_numpy, _given(policy, observations, memory)))
        return actions.numpy(), preferences.numpy()

    return answer


_WRITERS: Final = {"torchscript": _torchscript, "onnx": _onnx, "safetensors": _safetensors}


def _acting(policy: Policy) -> Acting:
    network: Any = policy.stored.module
    return Acting(algorithm(policy.algorithm), network, policy.memory_units).eval()


def _inputs(policy: Policy, samples: Samples) -> tuple[Tensor, ...]:
    """A few samples to follow the graph with; not one, which would be taken for the only size of a batch."""
    some = each(lambda of: of[:3], samples.observations)
    return tuple(map(torch.from_numpy, _given(policy, some, samples.memory[:3])))


def _given(policy: Policy, observations: Any, memory: NDArray[np.float32]) -> list[NDArray[Any]]:
    """The inputs of a file, in their order."""
    return [*arrays_of(observations), *([memory] if policy.memory_units else [])]


def _names(policy: Policy) -> list[str]:
    """What a file calls its inputs of an observation."""
    columns = policy.stored.spec.columns
    return ["observations"] if len(columns) == 1 else [column.name for column in columns]


def _checked(policy: Policy, exported: Exported, samples: Samples) -> float:
    """The largest difference between preferences. Raises ExportProblem where an action differs, in a batch of all or of one."""
    largest = 0.0
    choices = Choices(policy.stored.spec.action_sizes)
    for count in (len(samples.memory), 1):
        observations, memory = each(lambda of, count=count: of[:count], samples.observations), samples.memory[:count]
        wanted, _ = policy.preferences(observations, memory)
        actions, preferences = exported(observations, memory)
        if different := int((actions != choices.best(wanted)).sum()):
            raise ExportProblem(
                f"nothing was kept: for {different} of {count} observations of {samples.origin} the file gives another action"
            )
        largest = max(largest, float(np.abs(preferences - wanted).max()))
    return largest


@contextmanager
def _quietly() -> Iterator[None]:
    """torch tells of what it follows, in warnings and in the log, which says nothing to who exports."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
