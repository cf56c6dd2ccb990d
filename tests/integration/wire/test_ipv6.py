"""One default for every interface: over IPv4 and IPv6, over either alone, and where the kernel has no IPv6."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

import pytest
from rljob.telemetry.server import TelemetryServer
from rljob.wire import Client, Message, Server
from rljob.wire.security import ClientSecurity, ServerSecurity, generate_keys

from tests.support.waiting import eventually

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


@pytest.mark.timeout(120)
def test_every_interface_is_reached_over_both() -> None:
    ping(["127.0.0.1", "[::1]", "localhost"])


@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux system calls")
def test_where_the_kernel_has_no_ipv6_it_is_ipv4() -> None:
    ping(["127.0.0.1", "localhost"], WITHOUT_IPV6)


@pytest.mark.timeout(120)
def test_where_there_is_only_ipv6_it_is_that() -> None:
    if subprocess.run(
        ["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True, check=False
    ).returncode:
        pytest.skip("no network namespace can be made here: it takes root")
    ping(["[::1]", "[fd00::7]"], "", "unshare", "--net", "sh", "-c", IPV6_ONLY + '"$0" "$@"')


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
