"""What the verbs and the operator get out of pods through a real API server: logs by way of a node, figures by pods/proxy."""

import asyncio
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rljob.telemetry.server import TelemetryServer
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS
from rljob_operator.kube.reach import PodsProxy
from rljob_operator.polls.poll import NO_ANSWER, STANDS_STILL, Alive, LearnerPoll, Poll, Rhythm

from tests.cluster.control_plane import until
from tests.cluster.kubelet_server import KubeletServer, kubelet_server, own_address
from tests.cluster.reconciling import OneJob
from tests.cluster.terminal import User

FIGURES = {"updates": 4321, "steps_per_second": 987.0, "queue_depth_batches": 3, "queue_bound_batches": 9, "actors": []}


class Door:
    """A learner's metrics port at this machine's address."""

    def __init__(self, address: str, token_file: Path) -> None:
        self.notes: list[Any] = []
        self.asked = threading.Event()
        self.server = TelemetryServer(
            "learner", 0, self._read, lambda: True, requests={"/checkpoint": self.notes.append}, host=address,
            token_file=token_file,
        )  # fmt: skip

    def _read(self) -> dict[str, Any]:
        self.asked.set()
        return FIGURES


@pytest.fixture
def address() -> str:
    found = own_address()
    if not found:
        pytest.skip("this machine has no address but loopback's, to which an API server does not go")
    return found


@pytest.fixture
def door(address: str, tmp_path: Path) -> Iterator[Door]:
    (tmp_path / "token").write_text("s3cret")
    found = Door(address, tmp_path / "token")
    yield found
    found.server.close()


@pytest.fixture
def running(user: User, address: str, door: Door, runner: asyncio.Runner, pong: OneJob) -> Iterator[KubeletServer]:
    """The user's job's pods "run", with the learner's metrics port at this machine's; their kubelet."""

    async def bring() -> None:
        await pong.start(actors={"replicas": 2}, monitoring={"metricsPort": door.server.port})
        name = (await pong.pod("learner"))["metadata"]["name"]
        here = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
        await pong.viewer.patch(PODS, user.namespace, name, here, subresource="status")

    with kubelet_server(user.cluster, address) as server:
        runner.run(bring())
        for member, (pod,) in runner.run(pong.pods()).items():
            server.logs[pod["metadata"]["name"]] = [f"{member} line {number}" for number in range(30)]
        yield server


@pytest.fixture
def learner_url(running: KubeletServer, user: User, runner: asyncio.Runner, viewer: Client, door: Door) -> str:
    """The learner's metrics port, by way of the API server."""
    (pod,) = runner.run(viewer.list(PODS, user.namespace, label_selector="rljob.dev/role=learner")).items
    return PodsProxy(viewer).url(pod, door.server.port)


def test_figures_come_from_the_learner_through_the_api_server(user: User, running: KubeletServer) -> None:
    heading, row = user.sees("get", "pong").splitlines()
    cells = dict(zip(re.split(r"  +", heading), re.split(r"  +", row), strict=True))
    assert (cells["DEPTH"], cells["STEPS/S"]) == ("3/9", "987")
    screen = user.sees("top", "pong", "--once")
    assert "queue depth 3 of 9 batches (33 %)" in screen
    assert "updates 4,321" in screen
    assert "! learner" not in screen


def test_a_profile_comes_from_a_pod_through_the_api_server(user: User, running: KubeletServer, tmp_path: Path) -> None:
    said = user.sees("profile", "pong", "learner", "--seconds", "1", "-o", str(tmp_path / "profile"))
    assert "MainThread" in said
    assert "functions as sampled" in (tmp_path / "profile" / "timeline.json").read_text()
    refusal = user.refused(2, "profile", "pong", "inference-3", "-o", str(tmp_path / "other"))
    assert "no inference-3 to profile; there are: learner, actor-0, actor-1, replay-0" in refusal


@pytest.mark.timeout(60)
async def test_an_operator_asks_and_requests_through_the_api_server(
    viewer: Client, door: Door, learner_url: str
) -> None:
    """The learner takes requests with its token alone, and no Authorization header comes through the API server."""
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(urllib.request.Request(f"{door.server.url}/checkpoint", data=b"{}"), timeout=30)
    poll: Poll[str] = Poll(lambda name: None, PodsProxy(viewer), rhythm=Rhythm(0.1))
    poll.follow("pong", [LearnerPoll("a", learner_url, "wrong")], 7.5)
    await until("an answer", lambda: poll.answer("pong").status is not None)
    assert poll.answer("pong").status.updates == FIGURES["updates"]  # type: ignore[union-attr]
    assert door.notes == []
    poll.follow("pong", [LearnerPoll("a", learner_url, "s3cret")], 7.5)
    await until("the request", lambda: bool(door.notes))
    assert door.notes[0] == {"sinceUnix": 7.5}
    await poll.close()


@pytest.mark.timeout(60)
async def test_an_operator_tells_through_the_api_server_how_a_shard_fails_to_answer(
    viewer: Client, door: Door, learner_url: str
) -> None:
    """The port is that of the job's learner: a shard's answers in the same way."""
    told: list[str] = []
    poll: Poll[str] = Poll(told.append, PodsProxy(viewer), rhythm=Rhythm(0.05, 0.05))

    def because() -> str | None:
        silence = poll.silence("pong", "a")
        return None if silence is None else silence.because

    poll.follow("pong", [Alive("a", learner_url)])
    await asyncio.sleep(0.5)
    assert (poll.silence("pong", "a"), told) == (None, [])
    door.server.beat(within_seconds=0.0)
    await until("it stands still", lambda: because() == STANDS_STILL)
    door.server.beat()
    await until("it goes on", lambda: because() is None)
    door.server.close()
    await until("no answer", lambda: because() == NO_ANSWER)
    await poll.close()


def test_last_lines_of_all_of_a_role_and_of_a_member(user: User, running: KubeletServer) -> None:
    server = running
    assert [line.split() for line in user.sees("logs", "pong", "--tail", "2").splitlines()] == [
        [member, member, "line", str(number)]
        for member in ("actor-0", "actor-1", "learner", "replay-0")
        for number in (28, 29)
    ]
    assert len(user.sees("logs", "pong", "actor", "--tail", "3").splitlines()) == 6
    assert user.sees("logs", "pong", "learner", "--tail", "1") == "learner line 29\n"
    assert len(user.sees("logs", "learner").splitlines()) == 20, "the only job, and a role"
    assert user.sees("logs", "pong", "learner", "--tail", "0") == ""
    assert {container for _, container, _ in server.asked} == {"worker"}


def test_following_shows_what_comes(user: User, running: KubeletServer) -> None:
    server = running
    words = ["logs", "-n", user.namespace, "--kubeconfig", str(user.kubeconfig), "pong", "learner", "-f", "--tail", "1"]
    # Tests that were started in the background ignore Ctrl-C, and so would what they start.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heard}; from rljob_operator.__main__ import main; main()", *words]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == "learner line 29\n"
        (pod,) = [name for name in server.logs if "learner" in name]
        server.logs[pod].append("one that has just come")
        assert following.stdout.readline() == "one that has just come\n"
        following.send_signal(2)
        assert following.wait(30) == 0, "Ctrl-C is how one leaves"
        assert following.stdout.read() == ""
    finally:
        following.kill()
        following.wait()
