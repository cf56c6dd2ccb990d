"""Whatever the bytes are: a message or `MalformedMessage`, no more memory than the bytes pay for, and few answers."""

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.wire.errors import REASONS, MalformedMessage
from rljob.wire.message import decode, encode
from rljob.wire.schema import KINDS
from rljob.wire.sockets import RefusalLimiter

from tests.support.messages import MUTATIONS, seeds, well_formed

CASES = 20_000


def outcome(parts: list[bytes]) -> str:
    try:
        decode(parts)
    except MalformedMessage as error:
        return error.reason
    return "decoded"


def test_mutations_raise_nothing_else(any_seed: Callable[[int], int]) -> None:
    outcomes = Counter(map(outcome, mutants(any_seed(20_240), CASES)))
    # The mutations are worth something only if every check is reached, and some mutants are still messages.
    assert outcomes.keys() == REASONS - {"contents"} | {"decoded"}, outcomes
    assert (outcomes.total(), outcomes["decoded"] > 100) == (CASES, True)


@contextmanager
def tracing() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def allocated_by(parts: list[bytes]) -> int:
    """The most bytes at once."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    outcome(parts)
    return tracemalloc.get_traced_memory()[1] - before


def mutants(seed: int, count: int) -> Iterator[list[bytes]]:
    generator, originals = np.random.default_rng(seed), seeds()
    for case in range(count):
        yield MUTATIONS[case % 3](originals[int(generator.integers(len(originals)))], generator)


def test_memory_is_bounded_by_what_was_received(any_seed: Callable[[int], int]) -> None:
    cases = list(mutants(any_seed(7), 6_000))
    gc.collect()
    with tracing():
        for parts in cases:
            # LZ4 expands at most 255-fold; twice, because the block is decompressed beside its result. What is counted is the
            # whole process's: a thread that another test has left may allocate once, and a message does it each time.
            bound = 2 * 255 * sum(map(len, parts)) + 65_536
            assert any(allocated_by(parts) <= bound for _ in range(3))


@pytest.mark.parametrize("codec", [0, 1, 2])
@pytest.mark.parametrize("shape", [[1 << 26], [1 << 13, 1 << 13], [1 << 40], [0, 1 << 26], [1 << 26] * 6])
def test_a_lie_about_size_allocates_nothing(codec: int, shape: list[int]) -> None:
    parts = encode(well_formed("chunk", 5))
    header = msgpack.unpackb(parts[0])
    frames = header[3][0]
    assert frames[0] == "frames"
    frames[1:5] = ["u1", shape, codec, int(np.prod(shape, dtype=np.float64)) % (1 << 63)]
    lie = [msgpack.packb(header), *parts[1:]]
    assert outcome(lie) in ("size", "shape", "header", "codec")
    with tracing():
        assert allocated_by(lie) < 65_536


@given(st.lists(st.binary(max_size=700), max_size=20))
@settings(max_examples=500)
def test_random_parts(parts: list[bytes]) -> None:
    assert outcome(parts) != "decoded"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(max_size=12)
    | st.binary(max_size=8) | st.sampled_from(["u1", "f4", "frames", "chunk"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=6) | st.integers(0, 9), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(
    kind=st.sampled_from(sorted(KINDS)),
    fields=_VALUES,
    columns=_VALUES,
    buffers=st.lists(st.binary(max_size=40), max_size=9),
)
@settings(max_examples=500)
def test_any_msgpack_in_the_place_of_fields_and_columns(
    kind: str, fields: object, columns: object, buffers: list[bytes]
) -> None:
    outcome([msgpack.packb([1, kind, fields, columns]), *buffers])


@given(st.data())
@settings(max_examples=500)
def test_any_value_anywhere_in_a_good_header(data: st.DataObject) -> None:
    parts = [bytes(p) for p in encode(well_formed(data.draw(st.sampled_from(sorted(KINDS))), 3))]
    header = msgpack.unpackb(parts[0])
    node: list | dict = header
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if isinstance(node[key], list | dict) and node[key] and data.draw(st.booleans()):
            node = node[key]
            continue
        node[key] = data.draw(_VALUES)
        break
    outcome([msgpack.packb(header), *parts[1:]])


def test_a_peer_gets_a_few_answers_a_second_and_many_together_are_bounded() -> None:
    now = [0.0]
    limiter = RefusalLimiter(lambda: now[0], per_peer=4, total=20)
    for now[0] in (0.0, 1.0, 1e6):
        assert sum(limiter.allows(b"a") for _ in range(1000)) == 4
        assert sum(limiter.allows(b"%d" % peer) for peer in range(10_000)) == 16
    now[0] += 0.9
    assert not limiter.allows(b"another")
