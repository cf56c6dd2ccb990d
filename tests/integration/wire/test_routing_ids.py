"""What a client can do with the id of its connection: libzmq aborts a process whose next id is taken, so none may be guessed.

That none is ever told is looked at wherever ``tests/support/odd_peers.py`` tells a server everything.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
