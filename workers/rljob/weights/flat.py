"""A network's state as one flat buffer with a manifest: what travels to actors and evaluator, whatever way it comes.

The buffer is the float32 tensors of ``state_dict()`` one after the other, in its order, without gaps; the manifest is JSON,
``{"tensors": [{"name", "shape", "dtype", "offset"}, ...], "meta": {...}}``, offsets in bytes. Each published version is
remembered with the update that it came after, so that the age of experience can be told in updates.

And what an evaluator tells the learner of them: its verdicts, and how far the games of the next one have come, each as the
document of the learner's status.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rljob.algorithms.shapes import first_difference, shapes_of, words_of
from rljob.api.learner_status import Verdict
from rljob.api.status_document import Document, json_document
from rljob.errors import UsageError
from rljob.strict_json import dumps
from rljob.wire import MalformedMessage, Message

MAX_TENSORS = 4096
MAX_DIMENSIONS = 16
MAX_COUNTER = (1 << 63) - 1
COUNTERS = ("updates", "samples", "steps", "raw_frames", "version", "epoch")
"""What ``meta`` counts, where it says so."""


class WeightsProblem(ValueError):
    """Weights that cannot be used: damaged on the way, or made for another network. The message says which."""


class OtherNetwork(WeightsProblem, UsageError):
    """Weights of another network than the role's own, though both were built for one job: no later ones will fit either."""


@dataclass(frozen=True, eq=False)
class Weights:
    """One version of a network's state. Immutable: ``buffer`` (uint8[bytes]) and ``manifest`` (uint8[bytes]) are never written.

    ``version`` counts publications of the learner, ``epoch`` its lives.
    """

    version: int
    epoch: int
    buffer: NDArray[np.uint8]
    manifest: NDArray[np.uint8]

    @cached_property
    def document(self) -> dict[str, Any]:
        """The parsed manifest. Raises WeightsProblem when it is not what this module writes."""
        try:
            document = json.loads(self.manifest.tobytes())
            tensors, meta = document["tensors"], document["meta"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise WeightsProblem(
                f"the manifest of weights version {self.version} is not readable: {type(error).__name__}: {str(error)[:80]}"
            ) from None
        if not isinstance(tensors, list) or not isinstance(meta, dict) or len(tensors) > MAX_TENSORS:
            raise WeightsProblem(f"the manifest of weights version {self.version} does not list tensors and meta")
        return {"tensors": tensors, "meta": meta}

    @property
    def meta(self) -> dict[str, Any]:
        """What the learner told about these weights: counters at the time they were published."""
        return self.document["meta"]  # type: ignore[no-any-return]

    def check(self, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        """Raise WeightsProblem unless everything that is read of these weights later can be: tensors that lie within the buffer
        and together fill no more than it, counters that count, and the network whose ``shapes`` are given, if any are; of another
        network it is OtherNetwork."""
        own = self.shapes
        for name in COUNTERS:
            value = self.meta.get(name, 0)
            if type(value) is not int or not 0 <= value <= MAX_COUNTER:
                raise WeightsProblem(
                    f"weights version {self.version} say that {name} is {str(value)[:40]!r}, which is no count"
                )
        mean = self.meta.get("mean_return")
        if mean is not None and type(mean) not in (int, float):
            raise WeightsProblem(
                f"weights version {self.version} say that mean_return is {str(mean)[:40]!r}, which is no number"
            )
        if shapes is not None and (difference := first_difference(shapes, own)):
            name, expected, found = difference
            raise OtherNetwork(
                f"weights version {self.version} are of another network: {name}: expected {words_of(expected)}, got "
                f"{words_of(found)} from the learner; build (or a network's factory) has to give the same network in every "
                "process, of its arguments alone"
            )

    def state(self) -> dict[str, Tensor]:
        """The tensors by name, copied out of the buffer. Raises WeightsProblem where the manifest does not fit it."""
        state: dict[str, Tensor] = {}
        for name, (shape, offset) in self._places.items():
            values = bytearray(
                self.buffer[offset : offset + 4 * prod(shape)]
            )  # a copy, aligned wherever the buffer lay
            state[name] = torch.frombuffer(values, dtype=torch.float32).reshape(shape) if values else torch.zeros(shape)
        return state

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor by name; nothing is copied. Raises WeightsProblem as ``state`` does."""
        return {name: shape for name, (shape, _) in self._places.items()}

    @cached_property
    def _places(self) -> dict[str, tuple[tuple[int, ...], int]]:
        """Shape and offset in bytes of every tensor, each of which lies within the buffer."""
        places: dict[str, tuple[tuple[int, ...], int]] = {}
        total = 0
        for entry in self.document["tensors"]:
            try:
                name, shape, offset = str(entry["name"]), tuple(map(int, entry["shape"])), int(entry["offset"])
                known = entry["dtype"] == "float32"
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise WeightsProblem(
                    f"a tensor of weights version {self.version} is described wrongly: {type(error).__name__}: {str(error)[:80]}"
                ) from None
            size = 4 * prod(shape)
            total += size
            extents = offset, *shape
            if (
                not known
                or len(shape) > MAX_DIMENSIONS
                or min(extents) < 0
                or max(extents) > self.buffer.size
                or offset + size > self.buffer.size
                or total > self.buffer.size
            ):
                raise WeightsProblem(
                    f"tensor {name!r} of weights version {self.version} does not lie within its buffer"
                )
            places[name] = shape, offset
        return places

    def load_into(self, module: nn.Module) -> None:
        """Copy into ``module`` (float32, any device). Nothing is changed unless every name and shape fits."""
        self.check(shapes_of(module))
        state, own = self.state(), module.state_dict()
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(state[name])


class Snapshot:
    """A copy of a module's state as it is now, on its way off the device: the thread that makes it does not wait for that.

    Every tensor must be float32: weights are kept in full precision.
    """

    def __init__(self, state: Mapping[str, Tensor], version: int, epoch: int, meta: Mapping[str, Any]) -> None:
        self.key, self._meta = (epoch, version), dict(meta)
        for name, tensor in state.items():
            if tensor.dtype != torch.float32:
                raise WeightsProblem(f"tensor {name!r} is {tensor.dtype}; weights are kept and sent as float32")
        self._shapes = {name: list(tensor.shape) for name, tensor in state.items()}
        parts = [tensor.detach().reshape(-1) for tensor in state.values()]
        flat = torch.cat(parts) if parts else torch.zeros(0)
        # From a GPU it arrives in pinned memory, after what that was told to do before.
        self._flat = flat.to("cpu", non_blocking=flat.is_cuda)
        self._event = torch.cuda.Event() if flat.is_cuda else None  # type: ignore[no-untyped-call]
        if self._event is not None:
            self._event.record()

    @cached_property
    def weights(self) -> Weights:
        """They arrive when they are first asked for, whatever thread that is."""
        if self._event is not None:
            self._event.synchronize()
        (epoch, version), offset, entries = self.key, 0, []
        for name, shape in self._shapes.items():
            entries.append({"name": name, "shape": shape, "dtype": "float32", "offset": offset})
            offset += 4 * prod(shape)
        manifest = dumps({"tensors": entries, "meta": self._meta}).encode()
        return Weights(version, epoch, self._flat.numpy().view(np.uint8), np.frombuffer(manifest, np.uint8))


def snapshot(module: nn.Module, version: int, epoch: int, meta: Mapping[str, Any]) -> Weights:
    """A copy of the module's state as it is now; later updates of the module do not reach it."""
    return Snapshot(module.state_dict(), version, epoch, meta).weights


class WeightSource(Protocol):
    """A client of the learner in another process, or the learner's own weights in the same one."""

    @property
    def answered(self) -> bool:
        """Whether the learner has told yet which weights there are, if any."""

    def poll(self) -> Weights | None:
        """Newly arrived weights, or None; at once."""


KEPT: Final = 10_000
"""Versions that are remembered, the newest."""


class VersionLog:
    """Written by the training loop, read by any thread. ``interval``: updates between two versions, for those long forgotten."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        # Version v has row v % KEPT. ``_at``: the update that it came after. ``_shared``: the newest update that its weights have
        # in common with the present ones; less than ``_at`` once the run has gone back behind it.
        self._version = np.full(KEPT, -1)
        self._at, self._shared = np.zeros(KEPT, np.int64), np.zeros(KEPT, np.int64)
        self._began_at = self.updates = self.version = 0

    def begin(self, updates: int) -> None:
        """The learner starts, or goes on, with so many updates made: those that it may have made beyond are given up."""
        np.minimum(self._shared, updates, out=self._shared)
        self._began_at = self.updates = updates

    def note(self, version: int, updates: int) -> None:
        """``version`` has been published after ``updates`` updates."""
        row = version % KEPT
        self._at[row] = self._shared[row] = updates
        self._version[row] = version
        self.version, self.updates = version, updates

    def age(self, version: int) -> int:
        """``ages`` of one version."""
        return int(self.ages(np.array(version)))

    def ages(self, versions: NDArray[np.int64]) -> NDArray[Any]:
        """Updates between the weights of each version and the present ones, int64 of the same shape, never negative.

        Those are the updates made since it was published; where the run has gone back to a checkpoint behind it, the ones
        that were given up and those made since then. Version 0, no weights at all, dates from the learner's start.
        """
        row, updates = versions % KEPT, self.updates
        known = self._at[row] + updates - 2 * self._shared[row]
        forgotten = np.maximum(0, self.version - versions) * self._interval
        ages = np.where(self._version[row] == versions, known, forgotten)
        return np.where(versions == 0, updates - self._began_at, ages)


_EMPTY = np.zeros(0, np.uint8)
_Told = TypeVar("_Told", bound=Document)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An evaluator's ``verdict`` on one version. ``weights`` are the ones judged, None where they were not sent."""

    verdict: Verdict
    weights: Weights | None = None

    def to_message(self) -> Message:
        """As the evaluator sends it."""
        return Message(
            "evaluation",
            {},
            {
                "document": packed_document(self.verdict),
                "buffer": self.weights.buffer if self.weights else _EMPTY,
                "manifest": self.weights.manifest if self.weights else _EMPTY,
            },
        )

    @classmethod
    def from_message(cls, message: Message, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Self:
        """Read a verdict. ``shapes`` are those of the network being trained, where they are known.

        Raises MalformedMessage for what the schema allows and is nevertheless no verdict: figures that count nothing, and weights
        that no policy could be made of (`Weights.check`).
        """
        verdict = unpacked_document(Verdict, message)
        if not message.columns["buffer"].size:
            return cls(verdict)
        weights = Weights(verdict.version, 0, uint8_column(message, "buffer"), uint8_column(message, "manifest"))
        try:
            weights.check(shapes)
        except WeightsProblem as problem:
            raise MalformedMessage("contents", str(problem)) from None
        return cls(verdict, weights)


def packed_document(told: Document) -> NDArray[np.uint8]:
    """The column ``document`` of a message."""
    return np.frombuffer(dumps(told.to_document()).encode(), np.uint8)


def unpacked_document(kind: type[_Told], message: Message) -> _Told:
    """The document in a message. Raises MalformedMessage where it is none, or has figures that count nothing."""
    try:
        return kind.from_document(json_document(uint8_column(message, "document").tobytes()))
    except ValueError as error:
        raise MalformedMessage("contents", f"{message.kind}: {error}") from None


def uint8_column(message: Message, column: str) -> NDArray[np.uint8]:
    """The bytes of a column."""
    return message.columns[column].astype(np.uint8, copy=False)
