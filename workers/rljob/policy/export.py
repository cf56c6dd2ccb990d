"""A trained policy as one file for programs that have no rljob: written, read back, and compared with the policy it is of.

TorchScript and ONNX are the whole way from observations to actions: ``observations`` [N, S, *F], or one input for each column
where an environment shows several kinds of numbers (and ``memory`` float32 [N, 2, H] of a recurrent policy), to ``actions`` int64
[N], ``preferences`` float32 [N, A] (and ``memory``). Where actions have continuous numbers, ``actions`` are as the environment's
own space has them, one output for each of its leaves. safetensors holds the weights alone, under the names that the network of
``rljob`` gives them.
"""

import dataclasses
import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
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

from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.registry import algorithm
from rljob.algorithms.trunk import FrameNetwork
from rljob.encoders import make_encoded_environment
from rljob.envs import EnvironmentProblem
from rljob.envs.encoding import any_action, at
from rljob.envs.spec import EnvironmentSpec
from rljob.errors import UsageError, named
from rljob.files import replace, replacing
from rljob.loading import short
from rljob.observation import arrays_of, each, of_columns
from rljob.policy.edge import TensorEdge
from rljob.policy.trained import Policy
from rljob.strict_json import dumps

COUNT = 64
_STEPS_APART = 4
_ROUNDING = 1e-3
"""How far two continuous actions may be apart that the same policy computes in another order of sums."""


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
    spec = policy.stored.spec
    env = make_encoded_environment(spec.id, policy.stored.env_params, for_scoring=True, spec=spec)
    try:
        observation, _ = env.reset(seed=0)
        seen = []
        for step in range(COUNT * _STEPS_APART):
            if step % _STEPS_APART == 0:
                seen.append(each(np.array, observation))
            observation, _, terminated, truncated, _ = env.step(any_action(spec, observation, random))
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
            "ofTheEnvironment": list(env_params.action_subset) or "all, in its own order",
            **_controls(policy),
        },
        "memory": memory,
        "environment": {"id": spec.id, **env_params.model_dump(mode="json", by_alias=True)},
        "algorithmParameters": policy.stored.params.model_dump(mode="json", by_alias=True),
        "counters": policy.manifest.get("counters"),
        "verdict": policy.manifest.get("verdict"),
        "checkpointSha256": policy.manifest.get("sha256"),
    }


def _controls(policy: Policy) -> dict[str, Any]:
    """What there is to say of actions with continuous numbers."""
    spec = policy.stored.spec
    if not spec.controls:
        return {}
    leaves = [dataclasses.asdict(leaf) for leaf in spec.action]
    names = _action_names(spec)
    return {
        "continuousNumbers": spec.controls,
        "comeIntoBoundsBy": "their tanh" if policy.stored.env_params.squashes else "clipping",
        "leaves": [{"output": name, **leaf} for name, leaf in zip(names, leaves, strict=True)],
    }


Exported = Callable[[Sequence[NDArray[Any]]], Sequence[NDArray[Any]]]
"""What a file answers to its inputs, in their order: its outputs."""

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
    samples = sample(policy)
    with replacing(file) as partial:
        exported = _WRITERS[form](policy, partial, samples)
        difference = _checked(policy, exported, samples)
        about = file.with_name(f"{file.name}.json")
        checked = {"observations": len(samples.memory), "of": samples.origin, "largestDifference": difference}
        digest = hashlib.sha256(partial.read_bytes()).hexdigest()
        facts = document(policy, form) | {"sha256": digest, "checked": checked}
        replace(about, dumps(facts, 1) + "\n")
    return Export(file, about, samples.origin, len(samples.memory), difference)


class Acting(nn.Module):
    """From observations to actions, as one graph of tensors: ``(*observations, memory) -> (actions, preferences, memory)``,
    one array of each column, and without ``memory`` where the policy has none. ``edge``: between the policy's continuous numbers
    and the environment's, where there are any."""

    def __init__(
        self, method: AnyAlgorithm, network: FrameNetwork, memory_units: int, edge: TensorEdge | None = None
    ) -> None:
        super().__init__()
        self.network = network
        self._method, self._units, self._edge = method, memory_units, edge

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        columns = self.network.columns
        observations, *memory = of_columns(columns, given[: len(columns)]), *given[len(columns) :]
        state = memory[0] if memory else torch.zeros(given[0].shape[0], 2, self._units)
        outputs, after = self._method.infer(self.network, observations, state)
        preferences = self._method.preferences(outputs)
        best = self.network.choices.best(preferences) if self._edge is None else None
        actions = (best,) if self._edge is None else self._edge.actions(preferences)
        answer = (*actions, preferences)
        return (*answer, after) if memory else answer


def _torchscript(policy: Policy, file: Path, samples: Samples) -> Exported:
    with _quietly():
        jit: Any = torch.jit
        traced = jit.trace(_acting(policy), _inputs(policy, samples), check_trace=False)
        jit.save(traced, str(file))
        return _in_numpy(jit.load(str(file)))


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
            output_names=[
                *_action_names(policy.stored.spec),
                "preferences",
                *(["memory_after"] if policy.memory_units else []),
            ],
            dynamic_shapes=(tuple({0: games} for _ in names),),
            external_data=False,
            verbose=False,
        )
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, dict(zip(names, given, strict=True)))


def _safetensors(policy: Policy, file: Path, samples: Samples) -> Exported:
    stored = policy.stored
    state = {name: tensor.contiguous() for name, tensor in stored.module.state_dict().items()}
    file.write_bytes(safetensors.torch.save(state, {"policy": dumps(document(policy, "safetensors"))}))
    method = algorithm(policy.algorithm)
    built = method.build(stored.spec, stored.params, stored.env_params)
    built.load_state_dict(safetensors.torch.load_file(str(file)))
    return _in_numpy(Acting(method, built.eval(), policy.memory_units, _edge(policy)))


_WRITERS: Final = {"torchscript": _torchscript, "onnx": _onnx, "safetensors": _safetensors}


def _acting(policy: Policy) -> Acting:
    network: Any = policy.stored.module
    return Acting(algorithm(policy.algorithm), network, policy.memory_units, _edge(policy)).eval()


def _edge(policy: Policy) -> TensorEdge | None:
    """None where actions are choices alone, which stay the numbers of choices."""
    spec = policy.stored.spec
    return TensorEdge(spec, squashes=policy.stored.env_params.squashes) if spec.controls else None


def _in_numpy(acting: Callable[..., Sequence[Tensor]]) -> Exported:
    def answer(given: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        with torch.inference_mode():
            return [out.numpy() for out in acting(*map(torch.from_numpy, given))]

    return answer


def _action_names(spec: EnvironmentSpec) -> list[str]:
    """What a file calls its outputs of an action."""
    alone = not spec.controls or len(spec.action) == 1
    return ["actions"] if alone else [f"actions.{leaf.path}" for leaf in spec.action]


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
    largest, spec = 0.0, policy.stored.spec
    for count in (len(samples.memory), 1):
        observations, memory = each(lambda of, count=count: of[:count], samples.observations), samples.memory[:count]
        wanted, _ = policy.preferences(observations, memory)
        taken = policy.act(observations, memory=memory.copy() if policy.memory_units else None)
        own = [at(taken, leaf) for leaf in spec.action] if spec.controls else [taken]
        *actions, preferences = exported(_given(policy, observations, memory))[: len(own) + 1]
        if different := sum(_differing(*pair) for pair in zip(actions, own, strict=True)):
            raise ExportProblem(
                f"nothing was kept: for {different} of {count} observations of {samples.origin} the file gives another action"
            )
        largest = max(largest, float(np.abs(preferences - wanted).max()))
    return largest


def _differing(actions: NDArray[Any], wanted: NDArray[Any]) -> int:
    """How many actions are others; of continuous ones, other than by rounding."""
    if actions.dtype.kind != "f":
        return int((actions != wanted).sum())
    return int((~np.isclose(actions, wanted, rtol=_ROUNDING, atol=_ROUNDING)).sum())


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
