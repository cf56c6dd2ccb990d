"""Who comes in, by which key and over which kind of address; nothing listens beyond this machine without keys.

What a client can do with the id of its connection: libzmq aborts a process whose next id is taken, so none may be guessed.

That none is ever told is looked at wherever ``tests/support/odd_peers.py`` tells a server everything.
"""

import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import zmq
from rljob.telemetry.server import TelemetryServer
from rljob.wire import (
    Client,
    ClientSecurity,
    Message,
    Publisher,
    Server,
    ServerSecurity,
    Subscriber,
    generate_keys,
    refused_handshakes_total,
)

from tests.support.sockets import GOODBYE, PULSE, take
from tests.support.waiting import eventually


def has_ipv6() -> bool:
    """Whether loopback has its address of IPv6, which many containers do without."""
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_only_allowed_keys_come_in(
    transport: str, tmp_path: Path, context: zmq.Context, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = f"ipc://{tmp_path}/s" if transport == "ipc" else "tcp://127.0.0.1:*"
    own, friend_keys, stranger_keys = generate_keys(), generate_keys(), generate_keys()
    with Server(endpoint, ServerSecurity(own, frozenset({friend_keys.public})), context=context) as server:
        outsiders = [
            Client(server.endpoint, ClientSecurity(stranger_keys, own.public), context=context),
            Client(server.endpoint, ClientSecurity(friend_keys, stranger_keys.public), context=context),
            Client(server.endpoint, context=context),
        ]
        with Client(server.endpoint, ClientSecurity(friend_keys, own.public), context=context) as friend:
            eventually(lambda: friend.send(GOODBYE))
            peer, message = take(server)
            assert message == GOODBYE
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline or refused_handshakes_total(context) < 1:
                assert not any(outsider.send(GOODBYE) for outsider in outsiders)
                assert server.receive() is None
                time.sleep(0.02)
            assert all(outsider.receive() is None for outsider in outsiders)
            warnings = [record.getMessage() for record in caplog.records if record.name == "rljob.wire.transport"]
            assert len(warnings) == 1, "said at once, and not again for each attempt"
            assert "its key is not one of this job's" in warnings[0]
            assert transport == "ipc" or "127.0.0.1" in warnings[0]
            assert server.send(peer, PULSE)
            assert friend.receive(60) == PULSE
            assert not server.malformed
        for outsider in outsiders:
            outsider.close()


def test_a_key_allowed_at_one_server_is_not_allowed_at_another(context: zmq.Context) -> None:
    own, one, two = generate_keys(), generate_keys(), generate_keys()
    with (
        Server("tcp://127.0.0.1:*", ServerSecurity(own, frozenset({one.public})), context=context) as first,
        Server("tcp://127.0.0.1:*", ServerSecurity(own, frozenset({two.public})), context=context) as second,
        Client(first.endpoint, ClientSecurity(one, own.public), context=context) as right,
        Client(second.endpoint, ClientSecurity(one, own.public), context=context) as wrong,
    ):
        eventually(lambda: right.send(GOODBYE))
        take(first)
        time.sleep(0.5)
        assert not wrong.send(GOODBYE)
        assert second.receive() is None


def test_secure_notices_and_all_interfaces(context: zmq.Context) -> None:
    own, friend = generate_keys(), generate_keys()
    with Publisher("tcp://0.0.0.0:*", ServerSecurity(own, frozenset({friend.public})), context=context) as publisher:
        local = publisher.endpoint.replace("0.0.0.0", "127.0.0.1")
        with Subscriber(local, ClientSecurity(friend, own.public), context=context) as listener:
            eventually(lambda: publisher.publish(b"1") or listener.receive(0.05) == b"1")


def test_the_door_closes_with_the_last_server_and_opens_again(context: zmq.Context) -> None:
    own, friend = generate_keys(), generate_keys()
    for _ in range(3):
        with Server("tcp://127.0.0.1:*", ServerSecurity(own, frozenset({friend.public})), context=context) as server:
            with Client(server.endpoint, ClientSecurity(friend, own.public), context=context) as client:
                eventually(lambda c=client: c.send(GOODBYE))
                take(server)
            assert any(thread.name == "zap" for thread in threading.enumerate())
            server.close()
        assert not any(thread.name == "zap" for thread in threading.enumerate())


def test_a_secure_socket_that_cannot_bind_leaves_no_door_open(context: zmq.Context) -> None:
    security = ServerSecurity(generate_keys(), frozenset())
    with Server("tcp://127.0.0.1:*", context=context) as server, pytest.raises(zmq.ZMQError):
        Server(server.endpoint, security, context=context)
    assert not any(thread.name == "zap" for thread in threading.enumerate())


PINGS = """
import sys, urllib.request
from rljob.telemetry.server import TelemetryServer
from rljob.wire import Client, Message, Server
from rljob.wire.security import permit_plain
from tests.support.waiting import eventually

permit_plain()
with TelemetryServer("actor", 0, dict, bool, host="*") as pages, Server("tcp://*:*") as server:
    port = server.endpoint.rpartition(":")[2]
    for host in sys.argv[1:]:
        with Client(f"tcp://{host}:{port}") as client:
            eventually(lambda: client.send(Message("stats", {}, {})))
            eventually(server.receive)
        with urllib.request.urlopen(f"http://{host}:{pages.port}/status", timeout=10) as answer:
            assert answer.status == 200
"""
WITHOUT_IPV6 = """
import ctypes, struct
# A filter of system calls that refuses socket(AF_INET6) with EAFNOSUPPORT, as a kernel does that was started with ipv6.disable=1.
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, 41), (0x20, 0, 0, 16), (0x15, 0, 1, 10), (6, 0, 0, 0x50061), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program, libc = Program(len(steps), ctypes.addressof(code)), ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
"""
IPV6_ONLY = "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && ip addr add fd00::7/64 dev lo nodad && exec "


def ping(hosts: list[str], before: str = "", *command: str) -> None:
    done = subprocess.run(
        [*command, sys.executable, "-c", before + PINGS, *hosts],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-1500:]


@needs_ipv6
def test_every_interface_is_reached_over_both() -> None:
    ping(["127.0.0.1", "[::1]", "localhost"])


@pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux system calls")
def test_where_the_kernel_has_no_ipv6_it_is_ipv4() -> None:
    ping(["127.0.0.1", "localhost"], WITHOUT_IPV6)


def test_where_there_is_only_ipv6_it_is_that() -> None:
    if subprocess.run(["sh", "-c", "unshare --net ip link set lo up"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here: it takes root, unshare and ip")
    ping(["[::1]", "[fd00::7]"], "", "unshare", "--net", "sh", "-c", IPV6_ONLY + '"$0" "$@"')


@needs_ipv6
def test_a_socket_and_a_page_on_one_address_of_ipv6() -> None:
    own, friend = generate_keys(), generate_keys()
    with Server("tcp://[::1]:*", ServerSecurity(own, frozenset({friend.public}))) as server:
        assert server.endpoint.startswith("tcp://[::1]:")
        with Client(server.endpoint, ClientSecurity(friend, own.public)) as client:
            eventually(lambda: client.send(Message("stats", {}, {})))
            eventually(server.receive)
    with TelemetryServer("actor", 0, dict, bool, host="::1") as pages:
        assert pages.url == f"http://[::1]:{pages.port}"
        with urllib.request.urlopen(f"{pages.url}/status", timeout=10) as answer:
            assert answer.status == 200


FIXED_START = 0x6B8B4567
"""The first number of the C library's `rand` without a seed, and so the first id of an old process's first ROUTER."""

OLD = """
import ctypes, sys, zmq
ctypes.CDLL(None).srand(1)  # what a process that never seeds begins with
router = zmq.Context.instance().socket(zmq.ROUTER)
router.bind(sys.argv[1])
"""

NEW = """
import sys
from rljob.wire import Server
router = Server(sys.argv[1]).socket
"""

ONE_GUESS = """
import zmq
context = zmq.Context.instance()

def join(identity=None):
    client = context.socket(zmq.DEALER)
    client.linger = 0
    if identity is not None:
        client.setsockopt(zmq.IDENTITY, identity)
    client.connect(sys.argv[1])
    client.send(b"hello")
    assert router.poll(20_000), "no client came"
    return client, router.recv_multipart()[0]

first, _ = join()
guesser, _ = join(b"\\0" + (int(sys.argv[2]) + 1).to_bytes(4, "big"))
honest, its_id = join()
print(its_id.hex())
"""


FORKS = """
import os, sys, zmq
from rljob.wire import Client, Message, Server

def first_id(endpoint):
    with Server(endpoint) as server, Client(server.endpoint) as client:
        while not client.send(Message("pulse", {"service": "s", "known": True}, {})):
            pass
        while (received := server.receive()) is None:
            server.wait(1.0)
        return received[0]

for number in range(4):  # as the fork server does: nothing of zmq in use when it forks
    if os.fork() == 0:
        print(first_id(f"{sys.argv[1]}-{number}").hex(), flush=True)
        os._exit(0)
    os.wait()
"""


def run(program: str, endpoint: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, endpoint, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_the_old_fixed_start_can_be_guessed_and_ends_the_process(tmp_path: Path) -> None:
    ended = run(OLD + ONE_GUESS, f"ipc://{tmp_path}/router", FIXED_START)
    assert ended.returncode == -signal.SIGABRT, ended.stderr
    assert "socket_base.cpp" in ended.stderr


@pytest.mark.parametrize("transport", ["ipc", "inproc"])
def test_the_same_guess_does_nothing_to_a_server_of_ours(tmp_path: Path, transport: str) -> None:
    endpoint = f"{transport}://{tmp_path}/router"
    ids = []
    for _ in range(3):
        ended = run(NEW + ONE_GUESS, endpoint, FIXED_START)
        assert ended.returncode == 0, ended.stderr
        ids.append(ended.stdout)
    assert len(set(ids)) == 3, "every process begins somewhere else"


def test_forks_of_one_process_begin_in_different_places(tmp_path: Path) -> None:
    ended = run(FORKS, f"ipc://{tmp_path}/router")
    ids = ended.stdout.split()
    assert len(ids) == len(set(ids)) == 4, ended.stderr
    assert not any(identity.startswith(f"{FIXED_START:010x}"[:8]) for identity in ids)
