"""Round trips, and each way in which a message can be wrong."""

from contextlib import nullcontext
from zlib import crc32

import lz4.block
import msgpack
import numpy as np
import pytest
import zmq
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from rljob.observation import PICTURES
from rljob.wire.column import DELTA, LZ4
from rljob.wire.errors import MalformedMessage
from rljob.wire.message import HEADER_BYTES, Message, MessageLimits, decode, decode_header, encode
from rljob.wire.schema import DTYPES, KINDS, Column, Field, Kind
from rljob.wire.version import WIRE_VERSION

from tests.support.messages import well_formed

ANY = {
    "any": Kind(
        {"flag": Field(bool, optional=True), "name": Field(str, max_bytes=4, optional=True)},
        {"data": Column(frozenset(DTYPES), 1, 5, max_bytes=1 << 20), "b": Column(frozenset({"u1"}), optional="b")},
    )
}


def assert_same(left: Message, right: Message) -> None:
    assert (left.kind, dict(left.fields), left.columns.keys()) == (right.kind, dict(right.fields), right.columns.keys())
    for name, array in left.columns.items():
        assert array.dtype == right.columns[name].dtype
        np.testing.assert_array_equal(array, right.columns[name])


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("rows", [0, 1, 60])
def test_every_kind_makes_the_round_trip(kind: str, rows: int) -> None:
    message = well_formed(kind, rows)
    for compress in ((), tuple(message.columns)):
        parts = encode(message, compress=compress)
        assert len(parts[0]) <= HEADER_BYTES
        for form in (parts, list(map(zmq.Frame, parts)), list(map(memoryview, parts)), decode_header(parts).parts()):
            assert_same(decode(form), message)


@pytest.mark.parametrize("code", sorted(DTYPES))
@given(data=st.data())
def test_every_element_type_and_layout_makes_the_round_trip(code: str, data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=6))
    array = data.draw(hnp.arrays(DTYPES[code], shape))
    array = data.draw(st.sampled_from([array, array[::-1], array.T, np.asfortranarray(array), array[..., ::2]]))
    compress, deltas = data.draw(st.sampled_from([((), ()), (("data",), ()), (("data",), ("data",))]))
    parts = encode(Message("any", {}, {"data": array}), compress=compress, deltas=deltas, schema=ANY)
    result = decode(parts, schema=ANY).columns["data"]
    assert (result.dtype, result.shape, result.flags.writeable) == (array.dtype, array.shape, False)
    assert result.tobytes() == np.ascontiguousarray(array).tobytes()


def test_the_header_of_the_longest_chunk_fits() -> None:
    fields = {name: "x" * 64 if field.type is str else field.high for name, field in KINDS["mirror"].fields.items()} | {
        "steps": 300
    }
    columns = {
        name: np.zeros((300, *[8] * (min(column.max_ndim, 4) - 1)), DTYPES[max(column.dtypes)])
        for name, column in KINDS["mirror"].columns.items()
    }
    assert len(encode(Message("mirror", fields, columns))[0]) <= HEADER_BYTES


def test_compression_is_used_only_where_it_makes_the_buffer_smaller() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 10_000, dtype=np.uint8)
    for array, pays in ((np.zeros(10_000, np.uint8), True), (noise, False), (np.zeros(100, np.uint8), False)):
        raw = decode_header(encode(Message("any", {}, {"data": array}), compress=("data",), schema=ANY), schema=ANY)
        assert (raw.nbytes < array.nbytes, raw.columns["data"].raw_bytes) == (pays, array.nbytes)
        np.testing.assert_array_equal(raw.column("data"), array)


@pytest.mark.parametrize("width", [96, 97])
@pytest.mark.parametrize("code", ["u1", "i4", "f4", "b1"])
def test_differences_of_rows_come_back_and_are_smaller_where_detail_stands_still(code: str, width: int) -> None:
    """All bits come back: floats that are no numbers, too. Rows of 97 bytes are not a number of eight."""
    still = np.random.default_rng(0).integers(0, 2 if code == "b1" else 100, width).astype(DTYPES[code])
    array = np.repeat(still[None], 50, axis=0)
    for row in range(50):
        array[row, row] = 0
    if code == "f4":
        array[7, 3:6] = np.nan, -0.0, np.inf
    sizes = []
    for deltas in ((), ("data",)):
        parts = encode(Message("any", {}, {"data": array}), compress=("data",), deltas=deltas, schema=ANY)
        raw = decode_header(parts, schema=ANY)
        result = raw.column("data")
        assert (raw.columns["data"].codec, result.flags.writeable) == (DELTA if deltas else LZ4, False)
        assert result.tobytes() == array.tobytes()
        sizes.append(raw.nbytes)
    assert sizes[1] < sizes[0]


def test_where_there_are_no_rows_there_are_no_differences() -> None:
    for shape in ((5000,), (1, 5000)):
        array = np.zeros(shape, np.uint8)
        parts = encode(Message("any", {}, {"data": array}), compress=("data",), deltas=("data",), schema=ANY)
        assert decode_header(parts, schema=ANY).columns["data"].codec == LZ4
        version, kind, fields, ((name, dtype, extents, _, size, checksum),) = msgpack.unpackb(bytes(parts[0]))
        forged = msgpack.packb((version, kind, fields, ((name, dtype, extents, DELTA, size, checksum),)))
        with pytest.raises(MalformedMessage, match="codec 2, of differences of rows, and no rows"):
            decode([forged, parts[1]], schema=ANY)


def test_rekind_changes_the_header_and_no_buffer() -> None:
    parts = encode(well_formed("chunk", 40), compress=("frames", "action"))
    raw = decode_header(parts)
    mirrored = raw.rekind("mirror", {"slot": 11, "gen": 12})
    assert all(new is old for new, old in zip(mirrored[1:], parts[1:], strict=True))
    result = decode(mirrored)
    assert (result.kind, dict(result.fields)) == ("mirror", {**raw.fields, "slot": 11, "gen": 12})
    for kind, extra in (("mirror", {"slot": 1}), ("ack", {}), ("nonsense", {}), ("chunk", {"gen": 1})):
        with pytest.raises(MalformedMessage):
            raw.rekind(kind, extra)


def test_numpy_scalars_and_integers_become_the_declared_type() -> None:
    batch = {"req": np.int64(4), "parts": 1, "mass": np.float32(0.5), "error": 1, "shard": np.int64(5)}
    result = dict(decode(encode(Message("batch", batch, well_formed("batch", 3).columns))).fields)
    fetch = dict(decode(encode(Message("fetch", {"have": 1, "evaluation": np.True_}, {}))).fields)
    assert (result, fetch) == (batch, {"have": 1, "evaluation": True})
    assert [type(value) for value in (*result.values(), fetch["evaluation"])] == [int, int, float, float, int, bool]


@pytest.mark.parametrize(
    ("fields", "columns", "reason"),
    [
        ({}, {"data": np.float32(1)}, "shape"),
        ({}, {"data": np.zeros((1,) * 6, "u1")}, "shape"),
        ({}, {"data": np.array([None])}, "dtype"),
        ({}, {"data": np.zeros(3, ">f4")}, "dtype"),
        ({}, {"data": np.zeros(3, "c8")}, "dtype"),
        ({}, {"data": np.zeros(3, [("a", "f4")])}, "dtype"),
        ({}, {"data": np.array(["text"])}, "dtype"),
        ({}, {"data": np.zeros(1 << 20, "u2")}, "size"),
        ({}, {"data": np.zeros(3, "u1"), "other": np.zeros(3, "u1")}, "column"),
        ({}, {}, "column"),
        ({"flag": 1}, {"data": np.zeros(3, "u1")}, "field"),
        ({"other": 1}, {"data": np.zeros(3, "u1")}, "field"),
        ({"name": "\u00e9" * 3}, {"data": np.zeros(3, "u1")}, "field"),  # six bytes of UTF-8
    ],
)
def test_what_may_not_be_sent_is_refused_before_it_leaves(fields: dict, columns: dict, reason: str) -> None:
    with pytest.raises(MalformedMessage) as error:
        encode(Message("any", fields, columns), schema=ANY)
    assert error.value.reason == reason


def test_rows_must_agree_with_the_field_and_with_each_other() -> None:
    chunk = well_formed("chunk", 5)
    batch, inferred = well_formed("batch", 5), well_formed("inferred", 5)
    without = {name: array for name, array in inferred.columns.items() if name != "state"}
    for message, said in (
        (Message("chunk", {**chunk.fields, "steps": 4}, chunk.columns), "shape"),
        (Message("chunk", {**chunk.fields, "steps": 6}, chunk.columns), "shape"),
        (Message("batch", batch.fields, {"rows": np.zeros((5, 12), "u1")}), "rows of 12; they must be of 16"),
        (Message("inferred", inferred.fields, without), "together"),
    ):
        with pytest.raises(MalformedMessage, match=said):
            encode(message)


@pytest.mark.parametrize("kind", ["chunk", "unroll", "infer"])
def test_of_an_observation_there_are_the_columns_that_its_environment_shows(kind: str) -> None:
    message = well_formed(kind, 5)
    shown = {*PICTURES, "vector", "index", "octets"}
    assert shown < message.columns.keys()
    rest = {name: array for name, array in message.columns.items() if name not in shown and name != "control"}
    for some in ({"frames"}, {"vector"}, {"frames", "frames1", "octets"}):
        columns = {name: message.columns[name] for name in some} | rest
        assert_same(decode(encode(Message(kind, message.fields, columns))), Message(kind, message.fields, columns))


DATA = np.arange(64, dtype="<f4")
BLOCK = lz4.block.compress(bytes(4096), store_size=False)


def described(**changes: object) -> list[object]:
    entry: dict[str, object] = {
        "name": "data",
        "dtype": "f4",
        "shape": [64],
        "codec": 0,
        "raw": 256,
        "crc": crc32(DATA.tobytes()),
    }
    return list({**entry, **changes}.values())


@pytest.mark.parametrize(
    ("header", "buffers", "reason"),
    [
        ([WIRE_VERSION, "any", {}, [described()]], [DATA.tobytes()], None),
        ([WIRE_VERSION + 1, "any", {}, [described()]], [DATA.tobytes()], "version"),
        ([True, "any", {}, [described()]], [DATA.tobytes()], "version"),
        ([WIRE_VERSION, "none", {}, [described()]], [DATA.tobytes()], "kind"),
        ([WIRE_VERSION, 5, {}, [described()]], [DATA.tobytes()], "header"),
        ([WIRE_VERSION, "any", {}], [], "header"),
        ({}, [], "header"),
        ([WIRE_VERSION, "any", [], []], [], "header"),
        ([WIRE_VERSION, "any", {"flag": 1}, [described()]], [DATA.tobytes()], "field"),
        ([WIRE_VERSION, "any", {"x": 1}, [described()]], [DATA.tobytes()], "field"),
        ([WIRE_VERSION, "any", {1: 1}, [described()]], [DATA.tobytes()], "header"),
        ([WIRE_VERSION, "any", {}, []], [], "column"),
        ([WIRE_VERSION, "any", {}, [described()]], [], "parts"),
        ([WIRE_VERSION, "any", {}, [described()]], [DATA.tobytes()] * 2, "parts"),
        ([WIRE_VERSION, "any", {}, [described()] * 2], [DATA.tobytes()] * 2, "column"),
        ([WIRE_VERSION, "any", {}, [described(name="x")]], [DATA.tobytes()], "column"),
        ([WIRE_VERSION, "any", {}, [described(name=[])]], [DATA.tobytes()], "column"),
        ([WIRE_VERSION, "any", {}, [described()[:5]]], [DATA.tobytes()], "header"),
        ([WIRE_VERSION, "any", {}, [described(dtype="O")]], [DATA.tobytes()], "dtype"),
        ([WIRE_VERSION, "any", {}, [described(dtype=["f4"])]], [DATA.tobytes()], "dtype"),
        ([WIRE_VERSION, "any", {}, [described(shape=[])]], [DATA.tobytes()], "shape"),
        ([WIRE_VERSION, "any", {}, [described(shape=64)]], [DATA.tobytes()], "shape"),
        ([WIRE_VERSION, "any", {}, [described(shape=[-8, -8])]], [DATA.tobytes()], "shape"),
        ([WIRE_VERSION, "any", {}, [described(shape=[64.0])]], [DATA.tobytes()], "shape"),
        ([WIRE_VERSION, "any", {}, [described(shape=[0, 1 << 62])]], [b""], "shape"),
        ([WIRE_VERSION, "any", {}, [described(shape=[1 << 19, 1 << 19])]], [DATA.tobytes()], "size"),
        ([WIRE_VERSION, "any", {}, [described(shape=[63])]], [DATA.tobytes()], "size"),
        ([WIRE_VERSION, "any", {}, [described(raw=255)]], [DATA.tobytes()], "size"),
        ([WIRE_VERSION, "any", {}, [described(raw=256.0)]], [DATA.tobytes()], "header"),
        ([WIRE_VERSION, "any", {}, [described()]], [DATA.tobytes()[:-1]], "size"),
        ([WIRE_VERSION, "any", {}, [described()]], [DATA.tobytes() + b"x"], "size"),
        ([WIRE_VERSION, "any", {}, [described(crc=1)]], [DATA.tobytes()], "checksum"),
        ([WIRE_VERSION, "any", {}, [described(crc=-1)]], [DATA.tobytes()], "header"),
        ([WIRE_VERSION, "any", {}, [described(codec=3)]], [DATA.tobytes()], "codec"),
        ([WIRE_VERSION, "any", {}, [described(codec=True)]], [DATA.tobytes()], "codec"),
        ([WIRE_VERSION, "any", {}, [described(codec=1)]], [DATA.tobytes()[:99]], "checksum"),
        ([WIRE_VERSION, "any", {}, [described(codec=1, crc=crc32(b"\xff" * 99))]], [b"\xff" * 99], "codec"),
        ([WIRE_VERSION, "any", {}, [described(codec=1, shape=[1024], raw=4096, crc=crc32(BLOCK))]], [BLOCK], None),
        ([WIRE_VERSION, "any", {}, [described(codec=1, shape=[1023], raw=4092, crc=crc32(BLOCK))]], [BLOCK], "codec"),
        ([WIRE_VERSION, "any", {}, [described(codec=1, shape=[1025], raw=4100, crc=crc32(BLOCK))]], [BLOCK], "codec"),
        (
            [WIRE_VERSION, "any", {}, [described(codec=1, shape=[1 << 18], raw=1 << 20, crc=crc32(BLOCK))]],
            [BLOCK],
            "size",
        ),
        ([WIRE_VERSION, "any", {}, [described(codec=1, shape=[0], raw=0)]], [b""], "size"),
        ([WIRE_VERSION, "any", {}, [described(dtype="b1", shape=[2], raw=2, crc=crc32(b"\1\2"))]], [b"\1\2"], "codec"),
    ],
)
def test_each_lie_is_called_by_its_name(header: object, buffers: list[bytes], reason: str | None) -> None:
    parts = [msgpack.packb(header), *buffers]
    with nullcontext() if reason is None else pytest.raises(MalformedMessage) as error:
        decode(parts, schema=ANY)
    assert reason is None or (error.value.reason, len(str(error.value)) < 300) == (reason, True)


def test_limits_on_parts_header_and_total() -> None:
    parts = encode(well_formed("chunk", 50))
    limits = {"max_parts": 8}, {"max_header_bytes": 100}, {"max_message_bytes": 1000}
    wrong = [], [b""], [parts[0]] * (MessageLimits().max_parts + 1), [b"x" * (HEADER_BYTES + 1)]
    for sent, of in (
        *((parts, MessageLimits(**each)) for each in limits),
        *((each, MessageLimits()) for each in wrong),
    ):
        with pytest.raises(MalformedMessage):
            decode(sent, of)


def test_header_and_small_columns_need_no_frames() -> None:
    parts = encode(well_formed("chunk", 50), compress=("frames",))
    parts[1] = bytes(parts[1])[:-1] + b"?"
    raw = decode_header(parts)
    assert (raw.column("prio").shape, "frames" in raw.columns, "obs" in raw.columns) == ((50,), True, False)
    for broken in (raw.verify, raw.message):
        with pytest.raises(MalformedMessage, match="frames"):
            broken()
