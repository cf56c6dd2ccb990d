"""The allow-list: every kind of message, its fields and its columns.

A message that is not described here does not exist: it is refused before anything is allocated for it. Sizes are in
elements unless the name says `_bytes`; counts and sequence numbers are signed 64-bit integers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rljob.observation import PICTURES
from rljob.wire.errors import MalformedMessage, quoted

Scalar = int | float | str | bool

DTYPES: Final[Mapping[str, np.dtype[np.generic]]] = MappingProxyType(
    {
        code: np.dtype("|b1" if code == "b1" else f"<{code}")
        for code in ("b1", "u1", "u2", "u4", "u8", "i2", "i4", "i8", "f2", "f4", "f8")
    }
)
"""Element types by wire code, all little-endian. There is no object, string or structured type, and never will be."""

CODES: Final[Mapping[np.dtype[np.generic], str]] = MappingProxyType({dtype: code for code, dtype in DTYPES.items()})

DRAWN: Final = np.dtype([("slot", "<u4"), ("gen", "<u4"), ("value", "<f8")])
"""A transition of a shard: its slot id, the generation of its slot, and the probability of its draw, or its new priority. A
column `u1` [n, 16] has n of them (`drawn_of`, `drawn_column`): one buffer with one checksum."""

MiB: Final = 1 << 20


def drawn_of(column: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    """``DRAWN`` [n], a view of a column ``u1`` [n, 16]."""
    return column.view(DRAWN)[:, 0]


def drawn_column(drawn: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """The column of contiguous ``DRAWN`` [n], a view."""
    return drawn.view(np.uint8).reshape(-1, DRAWN.itemsize)


@dataclass(frozen=True, slots=True)
class Field:
    """One scalar of the header: its exact type, its range (integers), its length in bytes and its choices (text)."""

    type: type[int] | type[float] | type[str] | type[bool]
    low: int = -1
    high: int = (1 << 63) - 1
    max_bytes: int = 0
    choices: frozenset[str] = frozenset()
    optional: bool = False

    def check(self, name: str, value: object) -> None:
        """Raises `MalformedMessage("field")` unless `value` is exactly what this field allows."""
        if type(value) is not self.type:
            raise MalformedMessage(
                "field", f"{name} is {quoted(value)} ({type(value).__name__}); it must be {self.type.__name__}"
            )
        if type(value) is int:
            if not self.low <= value <= self.high:
                raise MalformedMessage("field", f"{name} is {value}; it must be within {self.low}..{self.high}")
        elif type(value) is str:
            if len(value) > self.max_bytes or (not value.isascii() and len(value.encode()) > self.max_bytes):
                raise MalformedMessage("field", f"{name} has more than {self.max_bytes} bytes of UTF-8")
            if self.choices and value not in self.choices:
                raise MalformedMessage("field", f"{name} is {quoted(value)}; it must be one of {sorted(self.choices)}")

    def coerce(self, value: object) -> object:
        """The plain Python scalar for a numpy scalar (or an int where a float is meant); anything else unchanged."""
        if isinstance(value, np.generic):
            value = value.item()
        return float(value) if self.type is float and type(value) is int else value


@dataclass(frozen=True, slots=True)
class Column:
    """One array: allowed element types, dimensions and size.

    `rows` labels the leading dimension: columns with the same label must have the same number of rows, and where the
    label is the name of a field, that many. Columns with the same ``optional`` come all together or not at all; "" is required.
    ``width``: the last extent; 0: any.
    """

    dtypes: frozenset[str]
    min_ndim: int = 1
    max_ndim: int = 1
    max_bytes: int = MiB
    rows: str = ""
    optional: str = ""
    width: int = 0

    def check(self, name: str, code: str, shape: tuple[int, ...]) -> int:
        """The size in bytes of this column with that type and shape; raises `MalformedMessage`. Allocates nothing."""
        if code not in self.dtypes:
            raise MalformedMessage("dtype", f"{name} has {quoted(code)}; it must be one of {sorted(self.dtypes)}")
        if not self.min_ndim <= len(shape) <= self.max_ndim:
            raise MalformedMessage(
                "shape", f"{name} has {len(shape)} dimensions; it must have {self.min_ndim}..{self.max_ndim}"
            )
        if self.width and shape[-1] != self.width:
            raise MalformedMessage("shape", f"{name} has rows of {quoted(shape[-1])}; they must be of {self.width}")
        raw_bytes = DTYPES[code].itemsize
        # Every extent is bounded before the product is formed, zero extents included: [0, 2**40] is refused.
        for extent in shape:
            if type(extent) is not int or not 0 <= extent <= self.max_bytes:
                raise MalformedMessage("shape", f"{name} has an extent {quoted(extent)}, not 0..{self.max_bytes}")
            raw_bytes *= extent
        if raw_bytes > self.max_bytes:
            raise MalformedMessage("size", f"{name} would have {raw_bytes} bytes; at most {self.max_bytes} are allowed")
        return raw_bytes


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of message: its fields and columns, all required unless a column says it is optional."""

    fields: Mapping[str, Field]
    columns: Mapping[str, Column]
    required: frozenset[str] = field(init=False)
    together: tuple[frozenset[str], ...] = field(init=False)

    def __post_init__(self) -> None:
        groups: dict[str, set[str]] = {}
        for name, column in self.columns.items():
            groups.setdefault(column.optional, set()).add(name)
        object.__setattr__(self, "required", frozenset(groups.pop("", ())))
        object.__setattr__(self, "together", tuple(frozenset(group) for group in groups.values() if len(group) > 1))

    def check_fields(self, fields: Mapping[str, object]) -> None:
        """Raises `MalformedMessage("field")` unless `fields` are exactly the declared ones."""
        for name, expected in self.fields.items():
            if name in fields:
                expected.check(name, fields[name])
            elif not expected.optional:
                raise MalformedMessage("field", f"{name} is missing")
        if not fields.keys() <= self.fields.keys():
            extra = next(name for name in fields if name not in self.fields)
            raise MalformedMessage("field", f"{quoted(extra)} is unknown; the fields are {sorted(self.fields)}")

    def check_columns(self, fields: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Presence and agreement of leading dimensions, for columns that each passed `Column.check`."""
        if len(shapes) != len(self.columns):
            self._check_presence(shapes)
        rows: dict[str, int] = {}
        for name, shape in shapes.items():
            label = self.columns[name].rows
            if not label:
                continue
            expected = rows.setdefault(label, fields.get(label, shape[0]))  # type: ignore[arg-type]
            if shape[0] != expected:
                raise MalformedMessage("shape", f"{name} has {shape[0]} rows; {label!r} says {expected}")

    def _check_presence(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        if not self.required <= shapes.keys():
            raise MalformedMessage("column", f"{min(self.required - shapes.keys())} is missing")
        for group in self.together:
            if absent := group - shapes.keys() if not group.isdisjoint(shapes) else None:
                raise MalformedMessage(
                    "column", f"{min(absent)} is missing: {sorted(group)} come together or not at all"
                )


_COUNT = Field(int, low=0)
_NUMBER = Field(int)
_SMALL = Field(int, low=0, high=1 << 20)
_REAL = Field(float)
_TRUTH = Field(bool)
_NAME = Field(str, max_bytes=64)
_CREDITS = {
    "credits": _SMALL,
    "pv": Field(int, low=0, optional=True),
}  # pv: the oldest weights to play with, in iterations
_SESSION = Field(int, low=0, optional=True)  # counts the hellos of a client; a welcome repeats it
_REASON = Field(str, max_bytes=200)


def _column(dtypes: str, *, ndim: tuple[int, int] = (1, 1), max_bytes: int = MiB, rows: str = "") -> Column:
    return Column(frozenset(dtypes.split()), *ndim, max_bytes=max_bytes, rows=rows)


def _kind(fields: Mapping[str, Field] | None = None, columns: Mapping[str, Column] | None = None) -> Kind:
    return Kind(MappingProxyType(dict(fields or {})), MappingProxyType(dict(columns or {})))


def _optional(columns: Mapping[str, Column]) -> dict[str, Column]:
    """All of these or none."""
    return {name: replace(column, optional="together") for name, column in columns.items()}


def _each_optional(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {name: replace(column, optional=name) for name, column in columns.items()}


def _rows(label: str, columns: Iterable[tuple[str, str]]) -> dict[str, Column]:
    return {name: _column(dtypes, rows=label) for name, dtypes in columns}


_WHO: Final = {"actor": _NAME, "inc": _NAME}
_CHUNK_FIELDS: Final = {
    "epoch": _NUMBER,
    **_WHO,
    "seq": _COUNT,
    "env": _SMALL,
    "pv": _NUMBER,
    "steps": _SMALL,
}
# One of each kind of numbers that an environment shows (`rljob.observation`); the layout of a run says which there are.
_OBSERVED: Final = _each_optional(
    {
        **{name: _column("u1 f4", ndim=(1, 6), max_bytes=64 * MiB) for name in PICTURES},
        "index": _column("i4", ndim=(2, 2), max_bytes=64 * MiB),
        "latents": _column("f2", ndim=(2, 2), max_bytes=64 * MiB),
        "octets": _column("u1", ndim=(2, 2), max_bytes=64 * MiB),
        "vector": _column("f4", ndim=(2, 2), max_bytes=64 * MiB),
    }
)
_ACTIONS: Final = {
    "action": _column("i4", ndim=(1, 2), rows="steps"),
    **_each_optional({"control": _column("f4", ndim=(2, 2), rows="steps")}),
}
_CHUNK_COLUMNS: Final = {
    **_OBSERVED,
    **_ACTIONS,
    **_rows("steps", [("obs_at", "u2"), ("boot_at", "u2"), ("ret", "f4"), ("disc", "f4"), ("prio", "f4")]),
    "flags": _column("u1", rows="steps"),
}
_UNROLL_COLUMNS: Final = {
    **_OBSERVED,
    **_ACTIONS,
    **_rows("steps", [(name, "f4") for name in ("reward", "disc", "logp", "final")]),
    **_rows("steps", [("ended", "u1"), ("pvs", "i8")]),
    # one row more than there are steps: they say something of the observation behind the last one as well
    **_rows("steps_and_one", [("obs_at", "u2")]),
    "state": _column("f4", ndim=(2, 2)),
}
_OBSERVATIONS: Final = _each_optional(
    {
        name: replace(column, min_ndim=2, max_ndim=column.max_ndim + 1, max_bytes=256 * MiB, rows="n")
        for name, column in _OBSERVED.items()
    }
)
_MEMORY: Final = _column("f4", ndim=(3, 3), max_bytes=64 * MiB, rows="n")
_VERSION: Final = {"version": _COUNT, "epoch": _NUMBER, "averaged": _TRUTH}
_BLOB: Final = _column("u1", max_bytes=512 * MiB)
_TEXT: Final = _column("u1", max_bytes=4 * MiB)
_NAMES: Final = Field(str, max_bytes=2048, optional=True)
_DRAWN: Final = replace(_column("u1", ndim=(2, 2), max_bytes=64 * MiB), width=DRAWN.itemsize)
_DRAWS: Final = replace(_column("u4", ndim=(2, 2), max_bytes=512), width=2)
_NUMBERS: Final = replace(_column("f8", ndim=(2, 2)), optional="metrics")

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        # actor <-> replay
        # `leaves`: what the actor's environment shows and takes, a line each, so that one of another is told where it differs
        "hello": _kind({**_WHO, "envs": _SMALL, "session": _SESSION}, _optional({"leaves": _TEXT})),
        "welcome": _kind(
            {
                "service": _NAME,
                "slot": _NUMBER,
                "slots": _COUNT,
                "life": _COUNT,
                "epoch": _NUMBER,
                "seq": _NUMBER,
                **_CREDITS,
                "session": _SESSION,
            }
        ),
        "chunk": _kind(_CHUNK_FIELDS, _CHUNK_COLUMNS),
        "unroll": _kind(_CHUNK_FIELDS, _UNROLL_COLUMNS),
        "ack": _kind({"seq": _NUMBER, "durable": _TRUTH, **_CREDITS}),
        "credit": _kind(_CREDITS),
        "heartbeat": _kind(
            {
                **_WHO,
                "pv": _NUMBER,
                "state": _NAME,
                "steps": _COUNT,
                "raw": _COUNT,
                "produced": _COUNT,
                "blocked": _REAL,
                "sps": _REAL,
                "names": _NAMES,
            },
            {"stages": _column("f8", max_bytes=4096), "metrics": _NUMBERS},
        ),
        # what an actor tells the shards that are not its home instead of a heartbeat
        "alive": _kind({**_WHO, "steps": _COUNT, "raw": _COUNT}),
        "pulse": _kind({"service": _NAME, "known": _TRUTH}),
        "episodes": _kind(
            {**_WHO, "names": _NAMES},
            {
                **_rows(
                    "n",
                    [
                        ("ret", "f4"),
                        ("length", "i4"),
                        ("raw", "i4"),
                        ("env", "i4"),
                        ("epsilon", "f4"),
                        ("cut", "u1"),
                        ("pv", "i8"),
                    ],
                ),
                "metrics": replace(_NUMBERS, rows="n"),
            },
        ),
        "goodbye": _kind(_WHO),
        # `kind` is that of the message refused, where it could be read
        "refused": _kind({"reason": _REASON, "kind": Field(str, max_bytes=64, optional=True)}),
        # actor <-> inference; `group` is a part of the actor's environments, which has one request at a time in flight;
        # `state` is a recurrent network's memory [n, 2, H], H = 0 for a network without
        "infer": _kind({**_WHO, "group": _SMALL, "req": _COUNT}, {**_OBSERVATIONS, "state": _MEMORY}),
        "inferred": _kind(
            {"group": _SMALL, "req": _COUNT, "pv": _COUNT, "epoch": _NUMBER},
            _optional({"out": _column("f4", ndim=(2, 2), max_bytes=16 * MiB, rows="n"), "state": _MEMORY}),
        ),
        # learner <-> replay
        "subscribe": _kind({"inc": _NAME, "epoch": replace(_COUNT, optional=True)}, _optional({"leaves": _TEXT})),
        "subscribed": _kind(
            {
                "service": _NAME,
                "epoch": _NUMBER,
                "chunks": _COUNT,
                "length": _SMALL,
                "frames": _SMALL,
                "state": _NAME,
            }
        ),
        "mirror": _kind({"slot": _COUNT, "gen": _COUNT, **_CHUNK_FIELDS}, _CHUNK_COLUMNS),
        # Requests numbered from `req` on, a row of `draws` each (there may be none): how many transitions, how many the limiter
        # counts. `rows`: new priorities, to be taken over before; `alpha`: the exponent to draw by. A batch answers the `parts`
        # oldest requests, first `req`, with their transitions one after the other; `mass` is the sum of all p^alpha and `error`
        # the limiter's, both after the draw. `pv`: the version of a learner that takes turns with its actors. `steps` and
        # `raw`: all that actors had played.
        "sample": _kind(
            {"req": _COUNT, "alpha": replace(_REAL, optional=True), "pv": replace(_COUNT, optional=True)},
            {"draws": _DRAWS, "rows": replace(_DRAWN, optional="rows")},
        ),
        "batch": _kind(
            {
                "req": _COUNT,
                "parts": _SMALL,
                "mass": _REAL,
                "error": _REAL,
                "shard": _NUMBER,
                "steps": replace(_COUNT, optional=True),
                "raw": replace(_COUNT, optional=True),
            },
            {"rows": _DRAWN},
        ),
        "stats": _kind({}, _optional({"json": _TEXT})),
        # weights
        # `node` and `serves`: where an actor is, and where it gives parts of weights to others there; `lost`: the relay that has
        # failed it
        "fetch": _kind(
            {
                "have": _NUMBER,
                "epoch": Field(int, optional=True),
                "evaluation": _TRUTH,
                "node": Field(str, max_bytes=253, optional=True),
                "serves": Field(str, max_bytes=128, optional=True),
                "lost": Field(str, max_bytes=128, optional=True),
            }
        ),
        # a version of `size` bytes in parts of `part`, with their sha256, and a `relay` to take them from; the only part follows
        # by itself where there is no relay. `averaged`: of the weights that only evaluations use. `want` is answered by the part,
        # or, of a version that is not kept, as `fetch` is
        "weights": _kind(
            {
                **_VERSION,
                "size": Field(int, low=0, high=512 * MiB),
                "part": Field(int, low=1, high=8 * MiB),
                "relay": Field(str, max_bytes=128, optional=True),
            },
            {"manifest": _TEXT, "digests": _column("u1", ndim=(2, 2))},
        ),
        "want": _kind({**_VERSION, "index": _SMALL}),
        "part": _kind({**_VERSION, "index": _SMALL}, {"buffer": _column("u1", max_bytes=8 * MiB)}),
        "current": _kind({"version": _COUNT}),
        # `document`: a `Verdict` and an `EvaluationUnderWay` of the learner's status
        "evaluation": _kind({}, {"document": _TEXT, "buffer": _BLOB, "manifest": _TEXT}),
        "evaluating": _kind({}, {"document": _TEXT}),
        "noted": _kind({"version": _COUNT}),
    }
)
"""Kinds by name. `inc` is the text of a random incarnation id; `shard` is an index. `names` and `metrics`: what environments
report (`named_numbers`)."""
