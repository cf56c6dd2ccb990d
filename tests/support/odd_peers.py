"""Who says odd things, in every kind of message that there is, and the honest actor beside it.

Messages that the schema allows and that no client in its right mind would send.
"""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from rljob.acting import ActorIdentity
from rljob.experience.columns import ActionSpace, transition_columns, unroll_columns
from rljob.wire import Client, MalformedMessage, Message, Server, encode
from rljob.wire.schema import DTYPES, KINDS

from tests.support import experience
from tests.support.experience import make_chunk, make_unroll
from tests.support.messages import well_formed
from tests.support.waiting import eventually, running

CHUNKS = replace(experience.CHUNKS, columns=transition_columns(ActionSpace((6,))))
UNROLLS = replace(experience.UNROLLS, columns=unroll_columns(ActionSpace((6,)), memory=0))
WHO = {"actor": "odd", "inc": "life"}
chunk = partial(make_chunk, "odd")
unroll = partial(make_unroll, "odd")


HONEST = ActorIdentity("honest", "life", 1)
HELLO = Message("hello", {**WHO, "envs": 1}, {})


def every_kind(*named: Message) -> Iterator[Message]:
    """Odd messages of every kind there is; ``named`` are what a kind's are made of, where that matters."""
    bases = {message.kind: message for message in named}
    for kind in sorted(KINDS):
        base = bases.get(kind) or well_formed(kind, 4)
        yield from odd(Message(kind, {**base.fields, **(WHO if "actor" in base.fields else {})}, base.columns))


def tell(server: Server, messages: Iterator[Message], before: Message | None = None) -> None:
    """Send all of them to ``server``, ``before`` in front of each, until it has read all. No answer tells a connection's id."""
    heard: list[bytes] = []
    already, count = server.received_total, 0
    with overheard_ids(server) as ids, Client(server.endpoint, high_water_mark=10_000) as peer:
        for message in messages:
            pair = [each for each in (before, message) if each is not None]
            if before is HELLO:
                # A life of its own for each, so that what one has sent does not make the next a duplicate.
                life = {"inc": uuid.uuid4().hex}
                pair = [
                    replace(m, fields={**m.fields, **(life if m.fields.get("inc") == "life" else {})}) for m in pair
                ]
            for each in pair:
                eventually(lambda m=each: peer.send(m), "it takes no more")
                count += 1
            while (parts := peer._read(16)) is not None:
                heard += map(bytes, parts)
        eventually(lambda: server.received_total - already >= count, "not everything was read")
        while peer.wait(0.1) and (parts := peer._read(16)) is not None:
            heard += map(bytes, parts)
    everything = b"\n".join(heard)
    assert ids
    assert not [each.hex() for each in ids if any(form in everything for form in written(each))]


@contextmanager
def overheard_ids(server: Server) -> Iterator[set[bytes]]:
    """The ids of those that write to it meanwhile."""
    ids: set[bytes] = set()
    read = server._read

    def overhear(max_parts: int) -> Any:
        parts = read(max_parts)
        if parts is not None:
            ids.add(bytes(parts[0]))
        return parts

    server._read = overhear  # type: ignore[method-assign]
    yield ids
    server._read = read  # type: ignore[method-assign]


def written(routing_id: bytes) -> list[bytes]:
    """How it could be told: as it is, turned round, as a number of a message's header, in letters, in digits."""
    number = routing_id[1:]
    digits = str(int.from_bytes(number, "big")).encode()
    return [
        routing_id,
        routing_id[::-1],
        b"\xce" + number,
        number.hex().encode(),
        number.hex().upper().encode(),
        digits,
    ]


@contextmanager
def saying(server: Server, answers: Callable[[Message], Iterable[Any]]) -> Iterator[None]:
    """A peer that answers each message with what ``answers`` says."""

    def run(stop: threading.Event) -> None:
        while not stop.is_set():
            server.wait(0.02)
            while (received := server.receive()) is not None:
                for answer in answers(received[1]):
                    server.send(received[0], answer)

    with running(run):
        yield
    server.close()


_TEXTS = ("", "x" * 64, "é" * 32, "../../etc", "{}")
_LARGEST = (1 << 63) - 1


def _values(field: Any) -> Iterator[Any]:
    if field.type is bool:
        yield from (True, False)
    elif field.type is float:
        yield from (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e308)
    elif field.type is int:
        yield from {field.low, 0, 1, 7, 1 << 31, field.high, _LARGEST}
    else:
        yield from field.choices or _TEXTS


def _arrays(array: np.ndarray, dtypes: Iterator[str]) -> Iterator[np.ndarray]:
    """Other values, lengths, shapes and types of a column."""
    for code in dtypes:
        as_type = array.astype(DTYPES[code])
        yield as_type
        if code[0] == "f":
            limits: tuple[Any, ...] = (np.nan, np.inf, -np.inf, -1, 0, 3e38)
        else:
            limits = (np.iinfo(as_type.dtype).min, np.iinfo(as_type.dtype).max, 0)
        for limit in limits:
            odd = as_type.copy()
            odd.reshape(-1)[:1] = limit
            yield odd
            yield np.full_like(as_type, limit)
    yield array[:0]
    yield array[:1]
    yield np.concatenate([array, array])
    if array.ndim > 1:
        yield array[..., :0]
        yield array[..., :1]
        yield array[..., None]
        yield array.reshape(len(array), -1)


def odd(base: Message) -> Iterator[Message]:
    """``base`` with one thing about it changed, and with all columns that belong together changed in length; only what the
    schema allows."""
    kind = KINDS[base.kind]
    candidates = []
    for name, field in kind.fields.items():
        candidates += [Message(base.kind, {**base.fields, name: value}, base.columns) for value in _values(field)]
        if field.optional:
            fields = {each: value for each, value in base.fields.items() if each != name}
            candidates.append(Message(base.kind, fields, base.columns))
    for name, column in kind.columns.items():
        if name not in base.columns:
            continue
        for array in _arrays(base.columns[name], iter(sorted(column.dtypes))):
            candidates.append(Message(base.kind, base.fields, {**base.columns, name: array}))
    labels = {column.rows for column in kind.columns.values()} - {""}
    for rows in (0, 1, 40) if labels else ():
        columns = {
            name: np.resize(array, (rows, *array.shape[1:])) if kind.columns[name].rows else array
            for name, array in base.columns.items()
        }
        fields = {name: rows if name in labels else value for name, value in base.fields.items()}
        candidates.append(Message(base.kind, fields, columns))
    optional = {name for name, column in kind.columns.items() if column.optional}
    if optional:
        columns = {name: array for name, array in base.columns.items() if name not in optional}
        candidates.append(Message(base.kind, base.fields, columns))
    for candidate in candidates:
        with contextlib.suppress(MalformedMessage):
            encode(candidate)
            yield candidate
