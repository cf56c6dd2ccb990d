"""What a client can do with the id of its connection: libzmq aborts a process whose next id is taken, so none may be guessed,
and none is ever told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.acting.identity import ActorIdentity
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ReplaySession
from rljob.experience import Segment
from rljob.inference.server import InferenceServer
from rljob.learner.unroll_queue import UnrollQueue, UnrollQueueConfig
from rljob.replay.config import ReplayConfig
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity
from rljob.weights.exchange import WeightServer
from rljob.weights.versions import VersionLog
from rljob.wire import Client, Message, Server, sockets

from tests.support.experience import CHUNKS, UNROLLS, make_chunk, make_unroll
from tests.support.inference import apex
from tests.support.messages import seeds, well_formed
from tests.support.threads import running
from tests.support.waiting import eventually
from tests.support.weights import Given

pytestmark = pytest.mark.timeout(300)

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

MANY_GUESSES = """
import random, zmq
context = zmq.Context.instance()
# A client that knows the old start tries what follows it; the others try anything. A guess counts while its socket is there.
chance = random.Random(1)
guesses = [int(sys.argv[2]) + step for step in range(50_000)] + [chance.getrandbits(32) for _ in range(50_000)]
ids = set()

def dealer():
    while True:
        try:
            client = context.socket(zmq.DEALER)
        except zmq.ZMQError:  # closed sockets are given back a little later, once the router has let go of them
            router.poll(1)
        else:
            client.linger = 0
            return client

for at in range(0, len(guesses), 500):
    clients = []
    for guess in guesses[at : at + 500]:
        client = dealer()
        client.setsockopt(zmq.IDENTITY, b"\\0" + guess.to_bytes(4, "big"))
        client.connect(sys.argv[1])
        clients.append(client)
    honest = dealer()
    honest.connect(sys.argv[1])
    honest.send(b"hello")
    assert router.poll(20_000), "no client came"
    ids.add(router.recv_multipart()[0])
    for client in (honest, *clients):
        client.close()
print(len(ids))
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


@pytest.mark.parametrize("transport", ["ipc", "inproc"])
def test_the_old_fixed_start_can_be_guessed_and_ends_the_process(tmp_path: Path, transport: str) -> None:
    ended = run(OLD + ONE_GUESS, f"{transport}://{tmp_path}/router", FIXED_START)
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


def test_a_hundred_thousand_guesses_miss(tmp_path: Path) -> None:
    ended = run(NEW + MANY_GUESSES, f"inproc://{tmp_path}", FIXED_START)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) == 200, "an honest client came after every five hundred guesses"


def test_forks_of_one_process_begin_in_different_places(tmp_path: Path) -> None:
    ended = run(FORKS, f"ipc://{tmp_path}/router")
    ids = ended.stdout.split()
    assert len(ids) == len(set(ids)) == 4, ended.stderr
    assert not any(identity.startswith(f"{FIXED_START:010x}"[:8]) for identity in ids)


# ------------------------------------------------------------------------------------------------- what peers are told


class Overheard:
    """The ids of all peers that wrote to a server of this process, and all that clients of this process were told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ids: set[bytes] = set()
        self.told: list[bytes] = []
        read = sockets._Endpoint._read

        def overhear(endpoint: Any, max_parts: int) -> Any:
            parts = read(endpoint, max_parts)
            if parts is not None and isinstance(endpoint, Server):
                self.ids.add(bytes(parts[0]))
            elif parts is not None:
                self.told.append(b"".join(map(bytes, parts)))
            return parts

        monkeypatch.setattr(sockets._Endpoint, "_read", overhear)

    def betrayed(self) -> list[str]:
        """The ids that stand in what was told: as they are, turned round, as a number, or in letters."""
        everything = b"\n".join(self.told)
        return [each.hex() for each in self.ids if any(form in everything for form in written(each))]


def written(routing_id: bytes) -> list[bytes]:
    number = routing_id[1:]
    digits = str(int.from_bytes(number, "big"))
    packed = b"\xce" + number  # as a message's header has a number
    return [routing_id, routing_id[::-1], packed, number.hex().encode(), number.hex().upper().encode(), digits.encode()]


def talk(server: Server, experience: Callable[[str, int], Segment] | None) -> None:
    """Three peers say everything that can be said, and a good deal of nonsense; two actors have their chunks acknowledged."""
    everything: list[Sequence[bytes]] = list(seeds(well_formed))
    nonsense = [[*parts[:-1], b"nonsense"] for parts in everything]
    with ExitStack() as closing:
        if experience is not None:
            for actor in ("one", "two"):
                identity = ActorIdentity(actor, "life", 1)
                session = ReplaySession(Client(server.endpoint), identity, ActorFigures(identity).heartbeat)
                closing.callback(session.close)
                session.encode(experience(actor, 0))
                eventually(lambda session=session: session.poll(0.01) or session.unacknowledged == 0)
        before = server.received_total
        peers = [closing.enter_context(Client(server.endpoint, high_water_mark=1000)) for _ in range(3)]
        for parts in (*everything, *nonsense):
            for peer in peers:
                eventually(lambda peer=peer, parts=parts: peer.send(parts))
        eventually(lambda: server.received_total - before >= 6 * len(everything))
        for peer in peers:
            while peer.receive(0.3) is not None:
                pass


def replay_config(folder: Path) -> ReplayConfig:
    limiter = LimiterConfig(0.0, 20, 0.0, insert_step=10, sample_step=16)
    ingest, sample = f"ipc://{folder}/ingest", f"ipc://{folder}/sample"
    return ReplayConfig("test", layout=CHUNKS, capacity=Capacity(1000), limiter=limiter, ingest=ingest, sample=sample)


def test_what_is_overheard_would_tell_of_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in range(6):
        overheard = Overheard(monkeypatch)
        with Server(f"ipc://{tmp_path}/{form}") as server, Client(server.endpoint) as client:
            eventually(lambda client=client: client.send(well_formed("stats", 1)))
            eventually(lambda server=server: server.receive() is not None)
            (its_id,) = overheard.ids
            server.send(its_id, Message("stats", {}, {"json": np.frombuffer(b"x" + written(its_id)[form], np.uint8)}))
            assert client.receive(60) is not None
        assert overheard.betrayed() == [its_id.hex()]
        monkeypatch.undo()


def test_no_peer_is_ever_told_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overheard = Overheard(monkeypatch)
    service = ReplayService(replay_config(tmp_path))
    with running(service.run):
        talk(service.ingest_server, make_chunk)
        talk(service.sample_server, None)
        overheard.told.append(json.dumps(service.status.to_document()).encode())
    versions = VersionLog(1)
    versions.note(1, 0)
    config = UnrollQueueConfig(f"ipc://{tmp_path}/queue", UNROLLS, batch_size=3, capacity=6, credits=8)
    queue = UnrollQueue(config, versions, torch.device("cpu"))
    talk(queue._server, make_unroll)
    overheard.told.append(json.dumps([status.to_document() for status in queue.statuses()]).encode())
    queue.close()
    weights = WeightServer(f"ipc://{tmp_path}/weights", f"ipc://{tmp_path}/notice")
    weights.publish(torch.nn.Linear(3, 2), 1, 1, {})
    talk(weights._server, None)
    overheard.told.append(json.dumps(weights.status()).encode())
    weights.close()
    setup = apex()
    inference = InferenceServer(f"ipc://{tmp_path}/inference", setup.model(16), Given(setup.weights(1)), 0.01)
    with running(inference.run):
        talk(inference._server, None)
        overheard.told.append(json.dumps(inference.status()).encode())
    assert len(overheard.ids) >= 5 * 3
    assert sum(map(len, overheard.told)) > 10_000, "they were told a lot"
    assert overheard.betrayed() == []
