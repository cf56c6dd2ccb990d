"""What an environment is, as far as networks, experience and checkpoints are concerned: the leaves of its spaces, in order."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rljob.api import EnvironmentParameters
from rljob.api.environment import EnvironmentSource
from rljob.choices import Choices
from rljob.loading import short
from rljob.observation import Columns, ObservationColumn, by_column, of_columns
from rljob.sources import without_places
from rljob.strict_json import dumps

# Neither the backend, nor how a network scales its input, nor the limit on failures changes what the environment is. An encoder
# does, by its content (``latents.encoded``) and not by where it lies.
_NOT_PART_OF_THE_ENVIRONMENT = {"backend", "centre_input", "encoder", "input_scale"}
_HANDED = "environment.json"
_PACKAGES: tuple[str, ...] = ("gymnasium", "ale-py", "numpy", "opencv-python-headless")

LeafRole = Literal["image", "vector", "index", "mask", "critic"]
Keys = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of an observation.

    keys: where it lies in what the environment gives; none where that is the array itself. role: ``image`` is seen by
    convolutions and stacked, ``vector`` are numbers, ``index`` numbers that become one-hot, ``mask`` which actions are allowed,
    and ``critic`` what losses alone see. dtype: as the space has it. scale: what a network multiplies it with.
    sizes: of an index, how many values each element has, from ``start`` on.
    column, offset: where it lies in a row of the experience, see ``rljob.observation``.
    """

    keys: Keys
    role: LeafRole
    shape: tuple[int, ...]
    dtype: str
    scale: float = 1.0
    sizes: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    column: str = "vector"
    offset: int = 0

    @property
    def path(self) -> str:
        """Its name in manifests and messages: its keys with dots between them, or "observation"."""
        return path_of(self.keys, "observation")

    @property
    def size(self) -> int:
        """Numbers that it takes of a row."""
        return prod(self.shape)

    @property
    def span(self) -> slice:
        """Which part of a row."""
        return slice(self.offset, self.offset + self.size)

    def __str__(self) -> str:
        values = f" of {_few(self.sizes)}" if self.sizes else ""
        return f"{self.path}: {self.role} {self.dtype} {list(self.shape)}{values}"


@dataclass(frozen=True, slots=True)
class ActionLeaf:
    """One array of an action: choices, each of ``sizes`` values from ``start`` on, or, without any, numbers ``low`` to ``high``.

    kind: the space's own name. keys, shape, dtype: as of ``Leaf``.
    """

    keys: Keys
    kind: str
    shape: tuple[int, ...]
    dtype: str
    sizes: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def path(self) -> str:
        """As of ``Leaf``, or "action"."""
        return path_of(self.keys, "action")

    def __str__(self) -> str:
        values = f"of {_few(self.sizes)}" if self.sizes else self.bounds
        return f"{self.path}: {self.kind} {self.dtype} {list(self.shape)} {values}"

    @property
    def bounds(self) -> str:
        """The bounds of continuous numbers, in words."""
        return f"from {_few(self.low)} to {_few(self.high)}"


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """Spaces and identity of an environment; equal fingerprints mean interchangeable experience.

    observation, action: the leaves, in the order of the space. stack: S, frames of images in one observation.
    raw_frames_per_step: the frame skip, 1 where there is none. masked_by_info: ``info["action_mask"]`` is the last leaf.
    encoder: sha256 (hex) of the file whose network makes the observation of what the environment shows; empty without one.
    """

    id: str
    observation: tuple[Leaf, ...]
    action: tuple[ActionLeaf, ...]
    stack: int
    raw_frames_per_step: int
    fingerprint: str
    masked_by_info: bool = False
    encoder: str = ""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> EnvironmentSpec:
        """Read back ``dataclasses.asdict`` as JSON keeps it. Raises KeyError, TypeError and ValueError for anything else."""
        leaves = tuple(Leaf(**_tuples(leaf)) for leaf in document["observation"])
        actions = tuple(
            ActionLeaf(
                **_tuples({**leaf, "low": _bounds(leaf["low"], -math.inf), "high": _bounds(leaf["high"], math.inf)})
            )
            for leaf in document["action"]
        )
        return cls(**{**document, "observation": leaves, "action": actions})

    @property
    def columns(self) -> Columns:
        """What an observation consists of."""
        return _columns(self.observation, self.stack)

    @property
    def observation_shape(self) -> Any:
        """(S, *F): the shape of one environment's observation, or a dict of such by column."""
        return of_columns(self.columns, [column.observed for column in self.columns])

    @property
    def observation_dtype(self) -> Any:
        """Such as "uint8", or a dict of such by column."""
        return of_columns(self.columns, [str(column.dtype) for column in self.columns])

    @property
    def row_bytes(self) -> int:
        """Memory of what one step adds to the observations, uncompressed."""
        return sum(column.row_bytes for column in self.columns)

    @property
    def action_sizes(self) -> tuple[int, ...]:
        """How many values each choice of an action has; of one Discrete it is one."""
        return tuple(size for leaf in self.action for size in leaf.sizes)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of the choices of one action: () of a single one, or [choices]."""
        sizes = self.action_sizes
        return () if len(sizes) == 1 else (len(sizes),)

    @property
    def num_actions(self) -> int:
        """What a network has a value or a logit for: the actions of one Discrete, or the values of all choices together."""
        return sum(self.action_sizes)

    @property
    def controls(self) -> int:
        """Continuous numbers of an action."""
        return sum(len(leaf.low) for leaf in self.action)

    @property
    def policy_numbers(self) -> int:
        """What a network has for a policy here: a logit for each value of each choice, and for each continuous number its mean
        and the logarithm of its deviation."""
        return self.num_actions + 2 * self.controls

    @property
    def all_choices(self) -> Choices:
        """All that there is to choose from, whatever a mask says."""
        return Choices(self.action_sizes, controls=self.controls)

    def choices(self, observation: Any) -> Choices:
        """What N environments that show ``observation`` let one choose from."""
        if self.mask is None:
            return self.all_choices
        row = by_column(self.columns, observation)[self.mask.column][:, -1]
        return Choices(self.action_sizes, row[:, self.mask.span] != 0, self.controls)

    @property
    def mask(self) -> Leaf | None:
        """The leaf that says which actions are allowed."""
        return next((leaf for leaf in self.observation if leaf.role == "mask"), None)

    def untaken(self, algorithm: str, takes: frozenset[str], *, centred: bool = False) -> str | None:
        """Why ``algorithm`` can't be trained here; or None. ``takes``: those of "choices", "controls", "controls alone", "masks"
        and "critic" that it learns from."""
        roles = {leaf.role: leaf.path for leaf in reversed(self.observation)}
        number = next((str(leaf) for leaf in self.action if leaf.low), "")
        choice = next((str(leaf) for leaf in self.action if leaf.sizes), "")
        mask, critic, several = roles.get("mask"), roles.get("critic"), len(self.action_sizes)
        both, shown = "IMPALA and PPO take both", "; ".join(map(str, self.observation))
        reasons = (
            (
                number and "controls" not in takes,
                f"{algorithm} learns choices alone, but there are continuous actions: {number}; {both}",
            ),
            (
                choice and "controls alone" in takes,
                f"{algorithm} learns continuous actions alone, but there are choices: {choice}; {both}",
            ),
            (
                several > 1 and "choices" not in takes,
                f"{algorithm} takes one Discrete action, but there are {several} choices",
            ),
            (
                mask and "masks" not in takes,
                f"{algorithm} does not know masks, but {mask} has one (actionMasks: Ignored does without)",
            ),
            (
                critic and "critic" not in takes,
                f"{algorithm} has no value beside its policy, which alone could see the leaf {critic} (role critic)",
            ),
            (
                not {"image", "vector", "index"} & roles.keys(),
                "no leaf of the observation is left for a policy to see",
            ),
            (
                centred and (len(self.observation) > 1 or self.observation[0].sizes),
                f"centreInput subtracts the mean of one image or vector, but {shown}",
            ),
        )
        return next((reason for applies, reason in reasons if applies), None)

    @property
    def seen_shapes(self) -> list[tuple[int, ...]]:
        """The shape of each picture, or, without any, of all that a policy sees in a row, indices one-hot."""
        pictures = [leaf.shape for leaf in self.observation if leaf.role == "image"]
        row = [leaf for leaf in self.observation if leaf.role in ("vector", "index")]
        return pictures or [(sum(sum(leaf.sizes) or leaf.size for leaf in row),)]

    @property
    def lines(self) -> tuple[str, ...]:
        """What it shows and takes, a line a leaf, for people, and for roles that compare."""
        observed = [f"observation {leaf}" if leaf.keys else str(leaf) for leaf in self.observation]
        actions = [f"action {leaf}" if leaf.keys else str(leaf) for leaf in self.action]
        stacked = [f"frames stacked: {self.stack}"] if self.stack > 1 else []
        return (*observed, *actions, *stacked, *([f"encoder: sha256 {self.encoder}"] if self.encoder else []))

    def difference(self, other: EnvironmentSpec) -> str | None:
        """The first line in which another one differs, in words; None where networks see and choose the same."""
        pairs = zip_longest(self.lines, other.lines, fillvalue="nothing")
        return next((f"{another} where this one has {one}" for one, another in pairs if one != another), None)


def path_of(keys: Keys, alone: str) -> str:
    """Keys with dots between them, or ``alone`` where there are none."""
    return ".".join(map(str, keys)) or alone


def _few(values: tuple[float, ...]) -> str:
    """All values, the one that all are, or the first ones."""
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    return ", ".join(f"{value:g}" for value in values[:6]) + (" ..." if len(values) > 6 else "")


def _bounds(found: Sequence[float | None], end: float) -> list[float]:
    return [end if each is None else each for each in found]  # JSON has no infinity


def _tuples(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}


@lru_cache(maxsize=64)
def _columns(leaves: tuple[Leaf, ...], stack: int) -> Columns:
    # By name, as Gymnasium sorts a Dict.
    dtypes = {"index": np.int32, "latents": np.float16, "octets": np.uint8, "vector": np.float32}
    flat: dict[str, list[Leaf]] = {name: [leaf for leaf in leaves if leaf.column == name] for name in dtypes}
    pictures = (
        ObservationColumn(
            leaf.column, np.dtype(np.uint8 if leaf.dtype in ("uint8", "bool") else np.float32), leaf.shape, stack
        )
        for leaf in leaves
        if leaf.role == "image"
    )
    rows = (
        ObservationColumn(
            name,
            np.dtype(dtypes[name]),
            (side_by_side[-1].span.stop,),
            most=tuple(size - 1 for leaf in side_by_side for size in leaf.sizes),
        )
        for name, side_by_side in flat.items()
        if side_by_side
    )
    return (*pictures, *rows)


def hand_over(run_dir: Path, source: EnvironmentSource, spec: EnvironmentSpec) -> None:
    """Keep in ``run_dir`` what ``source`` was found to be, for roles that need no more. Raises OSError."""
    document = {"of": source.model_dump(mode="json"), "spec": dataclasses.asdict(spec)}
    (run_dir / _HANDED).write_text(dumps(document, 2) + "\n")


def handed_over(run_dir: Path, source: EnvironmentSource) -> EnvironmentSpec | None:
    """What was kept of ``source`` in ``run_dir``; None where nothing was, or of another one."""
    try:
        document = json.loads((run_dir / _HANDED).read_text())
    except (OSError, ValueError):
        return None
    return EnvironmentSpec.of(document["spec"]) if document["of"] == source.model_dump(mode="json") else None


def fingerprint(
    environment_id: str, parameters: EnvironmentParameters, leaves: tuple[object, ...], *, reward_clipping: bool
) -> str:
    """sha256 (hex) over the id, the parameters that shape experience, the ``leaves``, and the packages' versions.

    ``reward_clipping``: what the parameter comes to for this environment; whether it was given or follows makes no difference.
    """
    left_out, packages = set(_NOT_PART_OF_THE_ENVIRONMENT), _PACKAGES
    if parameters.backend == "EnvPool":  # it has another environment of the same id
        left_out, packages = left_out - {"backend"}, (*packages, "envpool")
    described = {
        "id": short(environment_id),
        "parameters": {
            **parameters.model_dump(exclude=left_out),
            "register_functions": without_places(parameters.register_functions),
            # Clipped is what an empty list was before there were words: such experience is interchangeable.
            "actions": "Squashed" if parameters.squashes else list(parameters.action_subset),
            "reward_clipping": reward_clipping,
        },
        "leaves": [str(leaf) for leaf in leaves],
        "packages": {name: _version(name) for name in packages},
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
