"""Real sockets of every transport: conversation, fuzz, vanished peers, full queues."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from rljob.wire import (
    Client,
    Message,
    MessageLimits,
    Publisher,
    Server,
    Subscriber,
    encode,
    transport,
)

from tests.support.replay_peers import sample
from tests.support.sockets import GOODBYE, PULSE, take
from tests.support.waiting import eventually, known


def chunk(steps: int = 50, sequence: int = 0, seed: int = 0) -> Message:
    generator = np.random.default_rng(seed)
    frames = np.zeros((steps + 6, 84, 84), np.uint8)
    frames[:, 30:34, 30:34] = generator.integers(0, 256, (steps + 6, 4, 4))
    fields = {"epoch": 0, "actor": "actor-0", "inc": "one", "seq": sequence, "env": 0, "pv": 1, "steps": steps}
    columns = {
        "frames": frames,
        "obs_at": np.arange(steps, dtype=np.uint16),
        "boot_at": np.arange(steps, dtype=np.uint16),
        "action": generator.integers(0, 6, steps).astype(np.int32),
        "ret": generator.normal(size=steps).astype(np.float32),
        "disc": np.ones(steps, np.float32),
        "prio": np.ones(steps, np.float32),
        "flags": np.zeros(steps, np.uint8),
    }
    return Message("chunk", fields, columns)


@pytest.fixture(params=["inproc", "ipc", "tcp"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"inproc": f"inproc://{tmp_path}", "ipc": f"ipc://{tmp_path}/s", "tcp": "tcp://127.0.0.1:*"}[request.param]


@contextmanager
def meeting(endpoint: str, context: zmq.Context, **limits: Any) -> Iterator[tuple[Server, Client, bytes]]:
    """A server, a client, and the name by which the one knows the other."""
    with (
        Server(endpoint, context=context, **limits) as server,
        Client(server.endpoint, context=context, **limits) as client,
    ):
        eventually(lambda: client.send(GOODBYE))
        yield server, client, take(server)[0]


def test_conversation(endpoint: str, context: zmq.Context) -> None:
    message = chunk()
    with Server(endpoint, context=context) as server, Client(server.endpoint, context=context) as client:
        assert server.receive() is None
        assert client.receive(0.01) is None
        parts = encode(message, compress=("frames",))
        eventually(lambda: client.send(parts))
        server.wait(5)
        peer, raw = known(server.receive_raw())
        np.testing.assert_array_equal(raw.column("frames"), message.columns["frames"])
        assert server.send(peer, raw.rekind("mirror", {"slot": 1, "gen": 2}))
        mirrored = known(client.receive(60))
        assert mirrored.kind == "mirror"
        for name, column in message.columns.items():
            np.testing.assert_array_equal(mirrored.columns[name], column)
        assert (server.sent_total, server.received_total, client.sent_total, client.received_total) == (1, 1, 1, 1)
        assert not server.malformed | client.malformed


def test_large_columns_cross_without_copies(endpoint: str, context: zmq.Context) -> None:
    buffer = np.random.default_rng(0).integers(0, 256, 8 << 20, dtype=np.uint8)
    some = np.zeros(2, np.uint8)
    weights = Message("evaluation", {}, {"document": some, "buffer": buffer, "manifest": some})
    with meeting(endpoint, context) as (server, client, peer):
        assert server.send(peer, weights, copy=False)
        np.testing.assert_array_equal(known(client.receive(60)).columns["buffer"], buffer)


def test_a_client_counts_malformed_answers_and_goes_on(endpoint: str, context: zmq.Context) -> None:
    with meeting(endpoint, context) as (server, client, peer):
        for parts in ([b"nonsense"], [b""] * 40, encode(PULSE)):
            assert server.send(peer, parts)
        assert (client.receive(60), client.malformed) == (PULSE, {"header": 1, "parts": 1})


def test_limits_apply_to_what_is_received(endpoint: str, context: zmq.Context) -> None:
    small = MessageLimits(max_message_bytes=1000)
    with Server(endpoint, limits=small, context=context) as server, Client(server.endpoint, context=context) as client:
        eventually(lambda: client.send(chunk(5)))
        eventually(lambda: server.receive_raw() or server.malformed)
        assert (server.malformed, server.refused_total) == ({"size": 1}, 1)
        refused = known(client.receive(60))
        assert (refused.kind, str(refused.fields["reason"]).split(":")[0]) == ("refused", "size")


def test_sending_to_a_vanished_peer_blocks_nobody(endpoint: str, context: zmq.Context) -> None:
    with meeting(endpoint, context, high_water_mark=4) as (server, client, peer):
        client.close()
        # It reads as well, as every server does: libzmq notices in reading that a peer whose queue is full has gone.
        eventually(lambda: server.receive() or server.unreachable_total, between=lambda: server.send(peer, PULSE))
        assert not server.send(b"never-seen", PULSE)
        assert server.unreachable_total == 2


@pytest.mark.parametrize("read", range(45, 51))
def test_a_server_that_goes_between_the_parts_of_a_message_does_not_take_its_clients_along(
    read: int, context: zmq.Context, tmp_path: Path
) -> None:
    """libzmq looks for lost connections at each hundredth part, and ends the process where it is in the middle of a message."""
    part = Message("part", {"version": 1, "epoch": 1, "averaged": False, "index": 0}, {"buffer": np.ones(8, np.uint8)})
    with meeting(f"ipc://{tmp_path}/s", context) as (server, client, peer):
        assert all(server.send(peer, part) for _ in range(60))
        for _ in range(read):
            assert client.receive(5.0) is not None
        server.close()
        time.sleep(0.3)
        while client.receive() is not None:
            pass


def test_a_full_queue_says_so_and_loses_nothing(endpoint: str, context: zmq.Context) -> None:
    """A peer that does not read: `send` returns False, never blocks, and what it took arrives in order."""
    message = chunk(50)  # 400 kB, so that kernel buffers fill soon
    with meeting(endpoint, context, high_water_mark=2) as (server, client, peer):
        taken = 0
        while server.eagain_total < 5:
            mirror = Message("mirror", {**message.fields, "slot": taken, "gen": 0}, message.columns)
            taken += server.send(peer, mirror)
            assert taken < 1000
        for expected in range(taken):
            assert known(client.receive(60)).fields["slot"] == expected
        assert client.receive(0.05) is None
        eventually(lambda: server.send(peer, PULSE))
        sent = 0
        while client.eagain_total < 5:
            sent += client.send(sample(sent, (1, 1)))
            assert sent < 100_000
        for expected in range(sent):
            assert take(server)[1].fields["req"] == expected


def test_both_ends_wait_so_long_for_an_acknowledgement_and_no_longer(context: zmq.Context) -> None:
    """What the kernel was told of their connection: a peer that has vanished acknowledges nothing."""
    with meeting("tcp://127.0.0.1:*", context) as (server, _, _):
        port, found = int(server.endpoint.rpartition(":")[2]), []
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError), socket.socket(fileno=os.dup(int(number))) as end:
                if end.family == socket.AF_INET and port in (end.getsockname()[1], end.getpeername()[1]):
                    found.append(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    assert found == [transport.UNACKNOWLEDGED_MILLISECONDS] * 2


def test_a_connection_to_where_nothing_answers_is_given_up_and_its_name_asked_again(context: zmq.Context) -> None:
    """A name may tell the address of a pod that is gone, from which nothing comes back: the kernel would try for two minutes."""
    with ExitStack() as open_here:
        silent = open_here.enter_context(socket.socket())
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)  # once its queue is full, what asks for a connection is dropped without a word
        for _ in range(3):
            filling = open_here.enter_context(socket.socket())
            filling.setblocking(False)
            with suppress(BlockingIOError):
                filling.connect(silent.getsockname())
        client = open_here.enter_context(transport.make_socket(context, zmq.DEALER, 1))
        events = open_here.enter_context(client.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED))
        transport.connect(client, f"tcp://127.0.0.1:{silent.getsockname()[1]}", None)
        assert events.poll(2 * transport.CONNECT_MILLISECONDS), "it is not tried again"
        client.disable_monitor()


def test_nothing_is_queued_for_a_server_that_is_not_there(context: zmq.Context, tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/later"
    with Client(endpoint, context=context) as client:
        assert not client.send(GOODBYE)
        assert client.eagain_total == 1
        with Server(endpoint, context=context) as server:
            eventually(lambda: client.send(GOODBYE))
            first, _ = take(server)
        with Server(endpoint, context=context) as server:
            eventually(lambda: client.send(GOODBYE) and server.wait(0.1))
            again, _ = take(server)
            assert again != first


def test_the_name_of_a_closed_inproc_server_is_free_at_once(context: zmq.Context) -> None:
    """One in twenty found it still taken when closing was left to libzmq's background thread."""
    name = "inproc://again"
    for _ in range(300):
        with meeting(name, context):
            pass
    with Publisher(name, context=context) as publisher:
        assert publisher.endpoint == name


def test_notices(endpoint: str, context: zmq.Context) -> None:
    with Publisher(endpoint, context=context) as publisher, Subscriber(publisher.endpoint, context=context) as listener:
        versions = iter(range(1, 10_000))

        def heard() -> bool:
            publisher.publish(next(versions).to_bytes(8, "big"))
            return listener.receive(0.05) is not None

        eventually(heard)
        for version in (1 << 40, 1 << 41):
            publisher.publish(version.to_bytes(8, "big"))
        publisher.socket.send_multipart([b"two", b"parts"])
        publisher.socket.send(b"x" * 65)
        publisher.publish(b"end")
        seen = []
        eventually(lambda: seen.append(listener.receive()) or b"end" in seen)
        assert listener.malformed_total == 2
        with pytest.raises(ValueError, match="64"):
            publisher.publish(b"x" * 65)


def test_bad_endpoints_are_named(context: zmq.Context, tmp_path: Path) -> None:
    for endpoint in ("nonsense", "udp://127.0.0.1:5", "tcp://", f"ipc:///{'x' * 200}"):
        with pytest.raises(ValueError, match=endpoint[:8]):
            Server(endpoint, context=context)
    with (
        Server("tcp://127.0.0.1:*", context=context) as server,
        pytest.raises(zmq.ZMQError, match=r"cannot bind tcp://127\.0\.0\.1"),
    ):
        Server(server.endpoint, context=context)
    with pytest.raises(zmq.ZMQError, match="cannot bind ipc"):
        Server(f"ipc://{tmp_path}/no/such/folder", context=context)
