"""Weights over real in-process sockets: fetching, evaluation weights, verdicts, damage, and a learner that comes back lower."""

import itertools
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.api.learner_status import EvaluationUnderWay, Verdict
from rljob.learner.figures import Verdicts
from rljob.weights.client import WeightClient
from rljob.weights.flat import Evaluation, OtherNetwork, Snapshot, Weights, WeightsProblem, snapshot
from rljob.weights.server import PublishedVersion, WeightServer
from rljob.wire import Message, Publisher, Server, load_keys, write_keys
from torch import nn

from tests.support.odd_peers import saying
from tests.support.waiting import eventually, known
from tests.unit.learner.learner_builders import IMAGES, assert_equal, parameters, updater

Connect = Callable[..., WeightClient]
_names = itertools.count()


def network(seed: int = 0, hidden: int = 8) -> nn.Module:
    return updater(parameters(hidden_units=hidden), IMAGES, seed).online


@pytest.fixture
def endpoints() -> tuple[str, str]:
    number = next(_names)
    return f"inproc://weights-{number}", f"inproc://notice-{number}"


@pytest.fixture
def connect(endpoints: tuple[str, str], closes: Any) -> Connect:
    """Makes clients."""
    return lambda at=endpoints, **settings: closes(WeightClient(*at, **settings))


def news(client: WeightClient) -> Any:
    """The next weights that a client gets."""
    return known(client.wait(60.0))


def assert_those_of(weights: Weights, module: nn.Module) -> None:
    assert_equal(weights.state(), module.state_dict())


@pytest.fixture
def server(endpoints: tuple[str, str], closes: Any) -> Any:
    return closes(WeightServer(*endpoints))


def test_flat_round_trip_and_checks() -> None:
    module, other = network(1), network(2)
    weights = snapshot(module, 3, 1, {"updates": 30})
    assert weights.buffer.nbytes == 4 * sum(t.numel() for t in module.state_dict().values())
    assert weights.meta == {"updates": 30}
    weights.load_into(other)
    assert_equal(other.state_dict(), module.state_dict())
    with pytest.raises(OtherNetwork, match=r"another network: \S+weight: expected float32 \[4, .*, got float32 "):
        weights.load_into(network(hidden=4))
    with pytest.raises(WeightsProblem, match="float32"):
        Snapshot({"x": torch.zeros(2, dtype=torch.bfloat16)}, 1, 1, {})


def test_a_snapshot_does_not_follow_the_network() -> None:
    module = network()
    weights = snapshot(module, 1, 1, {})
    before = weights.buffer.copy()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1.0)
    assert np.array_equal(weights.buffer, before)


@pytest.mark.parametrize(
    "manifest",
    [
        b"{",
        b"[]",
        b'{"tensors": 1, "meta": {}}',
        b'{"tensors": [{}], "meta": {}}',
        b'{"tensors": [{"name": "x", "shape": [1000000], "dtype": "float32", "offset": 0}], "meta": {}}',
        b'{"tensors": [{"name": "x", "shape": [2], "dtype": "float32", "offset": -4}], "meta": {}}',
        b'{"tensors": [{"name": "x", "shape": [-1], "dtype": "float32", "offset": 0}], "meta": {}}',
        b'{"tensors": [{"name": "x", "shape": [1], "dtype": "object", "offset": 0}], "meta": {}}',
    ],
)
def test_a_manifest_that_lies_is_refused(manifest: bytes) -> None:
    weights = Weights(1, 1, np.zeros(8, np.uint8), np.frombuffer(manifest, np.uint8))
    with pytest.raises(WeightsProblem):
        weights.state()


def test_clients_get_the_latest_and_then_only_news(server: WeightServer, connect: Connect) -> None:
    client = connect(poll_seconds=0.05)
    assert client.wait(0.2) is None  # nothing published yet
    for version in (1, 2, 3):
        server.publish(network(version), version, 1, {"updates": 10 * version})
    while (fresh := news(client)).version < 3:
        pass  # it had asked before the last was published
    assert (fresh.version, fresh.epoch, fresh.meta["updates"]) == (3, 1, 30)
    assert_those_of(fresh, network(3))
    assert client.wait(0.3) is None


def test_a_notice_brings_weights_long_before_the_poll(server: WeightServer, connect: Connect) -> None:
    client = connect(poll_seconds=60.0)
    client.wait(0.3)  # connect, learn that there is nothing
    server.publish(network(1), 1, 1, {})
    assert news(client).version == 1


def test_weights_fetched_before_a_long_pause_are_not_taken_for_the_newest(
    server: WeightServer, connect: Connect
) -> None:
    server.publish(network(1), 1, 1, {})
    client = connect(poll_seconds=60.0)
    assert client.poll() is None  # asks, and then does something else for a while
    eventually(lambda: server.fetches)
    server.publish(network(2), 2, 1, {})
    client.outdate()
    assert news(client).version == 2
    client.outdate()
    assert client.wait(0.3) is None, "the same version is no news"


def test_a_restarted_learner_may_have_a_lower_version_or_the_same_one(server: WeightServer, connect: Connect) -> None:
    client = connect(poll_seconds=0.05)
    # The last was killed right after it had published, and resumed from the checkpoint before.
    for seed, (version, epoch) in enumerate(((50, 1), (40, 2), (40, 3))):
        server.publish(network(seed), version, epoch, {})
        fresh = news(client)
        assert (fresh.version, fresh.epoch, client.version) == (version, epoch, version)


def test_evaluators_get_the_evaluation_weights(server: WeightServer, connect: Connect) -> None:
    server.publish(network(1), 1, 1, {}, evaluation=network(2))
    server.publish(network(3), 2, 1, {})
    for evaluation, expected, version in ((True, network(2), 1), (False, network(3), 2)):
        fresh = news(connect(evaluation=evaluation))
        assert fresh.version == version
        assert_those_of(fresh, expected)


def verdict(version: int, mean: float, finished: bool = True, **more: Any) -> Verdict:
    more = {"version": version, "mean": mean, "finished": finished, "updates": 1} | more
    return Verdict(standard_error=0.3, seconds=12.0, episodes=2, **more)


def under_way(games: int, **more: Any) -> EvaluationUnderWay:
    return EvaluationUnderWay(version=7, games=games, episodes=100, **more)


def test_verdicts_travel_with_the_weights_judged(server: WeightServer, connect: Connect) -> None:
    client = connect(evaluation=True)
    judged, place = snapshot(network(4), 7, 1, {}), {"updates": 70, "raw_frames": 1234, "steps": 617}
    assert server.evaluating is None
    for playing in (under_way(0), under_way(2, mean=18.5, process={"cpu_cores": 1.5})):
        client.tell(playing)
        eventually(lambda playing=playing: server.evaluating == playing)
    figures = {"seed": 77, "metrics": {"is_success": 0.5}, "metric_games": {"is_success": 1.0}, **place}
    best, other = verdict(7, 18.5, **figures), verdict(8, 10.0, **figures)
    assert client.report(Evaluation(best, judged))
    arrived: list[Any] = []
    eventually(lambda: arrived.extend(server.evaluations()) or arrived)
    eventually(lambda: client.poll() or client.noted == 7)
    assert server.evaluating is None, "nothing is under way once there is a verdict"
    assert client.report(
        Evaluation(other)
    )  # one that is not the best comes without its weights, and has its place, too
    eventually(lambda: client.poll() or client.noted == 8)
    arrived += server.evaluations()
    assert [each.verdict for each in arrived] == [best, other]
    assert_those_of(arrived[0].weights, network(4))
    verdicts = Verdicts()
    assert list(map(verdicts.add, (best, best, other))) == [True, False, False]  # the first is sent twice
    assert [each.items() >= {**figures, "episodes": 2}.items() for each in verdicts.documents()] == [True, True]
    assert judged_in_turn(verdicts, verdict(8, 10.0), verdict(9, 30.0, False)) == [False, False]


def judged_in_turn(before: Verdicts, *given: Verdict) -> list[bool]:
    """Which of them is the best so far, for a learner that goes on from a checkpoint."""
    again = Verdicts()
    again.restore(before.documents())
    return [again.add(each) for each in given]


def test_a_verdict_that_was_given_up_is_the_best_until_one_is_played_to_its_end() -> None:
    never_near = Verdicts()
    assert [each.add(verdict(1, 40.0, updates=0)) for each in (never_near, Verdicts(trained_before=True))] == [
        False,
        True,
    ]
    assert never_near.add(verdict(9, 30.0, False)), "the best there is of what was trained"
    assert judged_in_turn(never_near, verdict(10, 29.0, False), verdict(8, 10.0)) == [False, True]
    behind = Verdicts()
    behind.restore([], never_near.documents()[1])  # judged, and kept, after the checkpoint
    assert not behind.add(verdict(10, 29.0, False))


class Numbers(nn.Module):
    """A network of so many numbers."""

    def __init__(self, count: int, seed: int = 0) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.arange(count) + float(seed))


@pytest.mark.parametrize(
    ("count", "part_bytes", "parts"), [(0, 64, 0), (1, 1, 4), (16, 64, 1), (17, 64, 2), (1000, 64, 63)]
)
def test_a_version_is_encoded_once_for_all_its_clients(
    connect: Connect, closes: Any, tmp_path: Path, count: int, part_bytes: int, parts: int
) -> None:
    write_keys(keys := tmp_path / "keys")
    security = load_keys(keys, "learner").server()
    server = closes(WeightServer("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", security, part_bytes=part_bytes))
    at = server.weights, server.notice, load_keys(keys, "actor").client("learner")
    clients = [connect(at) for _ in range(6)]
    for version in (1, 2):
        server.publish(Numbers(count, version), version, 1, {})
        for client in clients:
            assert_those_of(news(client), Numbers(count, version))
    status = server.status()
    assert status["encodings_total"] == 2
    assert status["sent_bytes_total"] >= 2 * 6 * 4 * count
    for each in server._published[False]._kept:
        assert len(each.parts) == parts
        for _ in range(2 if parts else 0):
            each.announcement(b"slow", "")
            first = [len(each.part(b"slow", parts - 1)) for _ in range(3)]
            assert first == [0 if parts == 1 else 1, 0, 0], "a part travels once, the only one with what is told first"


def test_a_damaged_part_and_a_lost_one_are_asked_for_again_and_no_other(
    connect: Connect, endpoints: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    version = PublishedVersion(snapshot(Numbers(160), 1, 1, {}), False, 64)
    wrong = {3: [np.zeros(64, np.uint8)], 7: []}  # what comes first, if anything
    wanted: list[int] = []

    def answer(message: Message) -> Iterable[Any]:
        if message.kind == "fetch":
            return version.announcement(b"", "")
        wanted.append(index := int(message.fields["index"]))
        if index in wrong:
            return [Message("part", message.fields, {"buffer": buffer}) for buffer in wrong.pop(index)]
        return [version.parts[index]]

    with saying(Server(endpoints[0]), answer), Publisher(endpoints[1]):
        client = connect(retry_seconds=0.2)
        assert_those_of(news(client), Numbers(160))
    assert sorted(wanted) == sorted([*range(10), 3, 7])
    assert (client.digest_mismatches, caplog.text.count("that has not the digest")) == (1, 1)


@pytest.fixture
def in_parts(endpoints: tuple[str, str], closes: Any) -> Any:
    """A server that sends four bytes at a time."""
    return closes(WeightServer(*endpoints, part_bytes=4))


def test_a_client_gets_a_whole_version_from_a_learner_that_publishes_all_the_time(
    in_parts: WeightServer, connect: Connect
) -> None:
    got = {connect(poll_seconds=0.01): 0 for _ in range(3)}
    versions = itertools.count(1)
    while min(got.values()) < 3:
        in_parts.publish(Numbers(64), version := next(versions), 1, {})
        assert version < 20_000
        for client in got:
            got[client] += client.poll() is not None
    assert in_parts.status()["encodings_total"] < version / 2
    assert len(in_parts._published[False]._kept) <= 4


def test_a_client_that_keeps_up_gets_every_version(in_parts: WeightServer, connect: Connect) -> None:
    client = connect()
    for version in range(1, 20):
        in_parts.publish(Numbers(2, version), version, 1, {})
        assert news(client).version == version, "those before hold it up"


def test_a_learner_that_returns_between_announcement_and_parts_gives_its_own_version(
    tmp_path: Path, connect: Connect
) -> None:
    endpoints = f"ipc://{tmp_path}/weights", f"ipc://{tmp_path}/notice"
    client = connect(endpoints, poll_seconds=0.05, retry_seconds=0.3)
    with closing(WeightServer(*endpoints, part_bytes=4)) as first:
        first.publish(Numbers(64), 5, 1, {})
        eventually(lambda: client.poll() is not None or client._download is not None)
    with closing(WeightServer(*endpoints, part_bytes=4)) as second:
        second.publish(Numbers(64, 9), 4, 2, {})
        fresh = news(client)
    assert (fresh.version, fresh.epoch) == (4, 2)
    assert_those_of(fresh, Numbers(64, 9))


def test_weights_never_go_back_to_an_earlier_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    """A learner that was superseded answers at the address of its successor, whatever version it has reached."""
    endpoints = f"ipc://{tmp_path}/weights", f"ipc://{tmp_path}/notice"
    later, client = WeightServer(*endpoints), connect(endpoints, poll_seconds=0.01)
    later.publish(network(1), 3, 2, {})
    eventually(lambda: client.poll() is not None)
    later.close()
    with closing(WeightServer(*endpoints)) as earlier:
        earlier.publish(network(2), 900, 1, {})
        eventually(lambda: client.superseded >= 2, between=lambda: client.poll() and pytest.fail("it has taken them"))
        assert (client.version, client.epoch, earlier.heard_epoch) == (3, 2, 2)
        assert caplog.text.count("weights of epoch 1 are passed over: those in use are of epoch 2") == 1
