"""Weights over real in-process sockets: fetching, evaluation weights, verdicts, damage, and a learner that comes back lower."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rljob.learner.verdicts import Verdicts
from rljob.weights.evaluations import Evaluating, Evaluation
from rljob.weights.exchange import WeightClient, WeightServer
from rljob.weights.flat import OtherNetwork, Weights, WeightsProblem, pack, snapshot
from rljob.wire import Message, Publisher, Server
from torch import nn

from tests.support.waiting import eventually
from tests.unit.learner.learner_builders import IMAGES, parameters, updater

_names = itertools.count()


def network(seed: int = 0, hidden: int = 8) -> nn.Module:
    return updater(parameters(hidden_units=hidden), IMAGES, seed).online


@pytest.fixture
def endpoints() -> tuple[str, str]:
    number = next(_names)
    return f"inproc://weights-{number}", f"inproc://notice-{number}"


@pytest.fixture
def server(endpoints: tuple[str, str]) -> Iterator[WeightServer]:
    server = WeightServer(*endpoints)
    yield server
    server.close()


def test_flat_round_trip_and_checks() -> None:
    module, other = network(1), network(2)
    weights = snapshot(module, 3, 1, {"updates": 30})
    assert weights.buffer.nbytes == 4 * sum(t.numel() for t in module.state_dict().values())
    weights.load_into(other)
    assert all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    )
    assert weights.meta == {"updates": 30}
    with pytest.raises(OtherNetwork, match=r"another network: \S+weight: expected float32 \[4, .*, got float32 "):
        weights.load_into(network(hidden=4))
    with pytest.raises(WeightsProblem, match="float32"):
        pack({"x": torch.zeros(2, dtype=torch.bfloat16)}, 1, 1, {})


def test_a_snapshot_does_not_follow_the_network() -> None:
    module = network()
    weights = snapshot(module, 1, 1, {})
    digest = Weights(1, 1, weights.buffer.copy(), weights.manifest).digest
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1.0)
    assert weights.digest == digest


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


def test_clients_get_the_latest_and_then_only_news(server: WeightServer, endpoints: tuple[str, str]) -> None:
    client = WeightClient(*endpoints, poll_seconds=0.05)
    assert client.wait(0.2) is None  # nothing published yet
    for version in (1, 2, 3):
        server.publish(network(version), version, 1, {"updates": 10 * version})
    while (fresh := client.wait(60.0)) is not None and fresh.version < 3:
        pass  # it had asked before the last was published
    assert fresh is not None
    assert (fresh.version, fresh.epoch, fresh.meta["updates"]) == (3, 1, 30)
    own = network(9)
    fresh.load_into(own)
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), network(3).parameters(), strict=True))
    assert client.wait(0.3) is None
    assert client.announced in (0, 3)
    client.close()


def test_a_notice_brings_weights_long_before_the_poll(server: WeightServer, endpoints: tuple[str, str]) -> None:
    client = WeightClient(*endpoints, poll_seconds=60.0)
    client.wait(0.3)  # connect, learn that there is nothing
    server.publish(network(1), 1, 1, {})
    assert client.wait(60.0) is not None
    client.close()


def test_weights_fetched_before_a_long_pause_are_not_taken_for_the_newest(
    server: WeightServer, endpoints: tuple[str, str]
) -> None:
    server.publish(network(1), 1, 1, {})
    client = WeightClient(*endpoints, poll_seconds=60.0)
    assert client.poll() is None  # asks, and then does something else for a while
    eventually(lambda: server.fetches)
    server.publish(network(2), 2, 1, {})
    client.outdate()
    fresh = client.wait(60.0)
    assert fresh is not None
    assert fresh.version == 2
    client.outdate()
    assert client.wait(0.3) is None, "the same version is no news"
    client.close()


def test_a_restarted_learner_may_have_a_lower_version(server: WeightServer, endpoints: tuple[str, str]) -> None:
    client = WeightClient(*endpoints, poll_seconds=0.05)
    server.publish(network(1), 50, 1, {})
    assert client.wait(60.0) is not None
    server.publish(network(2), 40, 2, {})
    fresh = client.wait(60.0)
    assert fresh is not None
    assert (fresh.version, fresh.epoch, client.version) == (40, 2, 40)
    client.close()


def test_evaluators_get_the_evaluation_weights(server: WeightServer, endpoints: tuple[str, str]) -> None:
    evaluator, actor = WeightClient(*endpoints, evaluation=True), WeightClient(*endpoints)
    server.publish(network(1), 1, 1, {}, evaluation=network(2))
    server.publish(network(3), 2, 1, {})
    for client, expected, version in ((evaluator, network(2), 1), (actor, network(3), 2)):
        fresh = client.wait(60.0)
        assert fresh is not None
        assert fresh.version == version
        fresh.load_into(own := network(7))
        assert all(torch.equal(a, b) for a, b in zip(own.parameters(), expected.parameters(), strict=True))
        client.close()


def test_verdicts_travel_with_the_weights_judged(server: WeightServer, endpoints: tuple[str, str]) -> None:
    client = WeightClient(*endpoints, evaluation=True)
    judged = snapshot(network(4), 7, 1, {"updates": 70, "raw_frames": 1234})
    sent = Evaluation(
        7,
        18.5,
        0.3,
        12.0,
        True,
        np.array([18.0, 19.0], np.float32),
        np.array([9, 8], np.int32),
        judged,
        77,
        {"is_success": 0.5},
    )
    assert server.evaluating is None
    client.tell(Evaluating(7, 0, 100, None))
    eventually(lambda: server.evaluating == Evaluating(7, 0, 100, None))
    playing = Evaluating(7, 2, 100, 18.5, process={"cpu_cores": 1.5})
    client.tell(playing)
    eventually(lambda: server.evaluating == playing)
    assert client.report(sent)
    arrived: list[Evaluation] = []
    eventually(lambda: arrived.extend(server.evaluations()) or arrived)
    eventually(lambda: client.poll() or client.noted == 7)
    assert server.evaluating is None, "nothing is under way once there is a verdict"
    got = arrived[0]
    assert (got.version, got.mean, got.finished, got.returns.tolist()) == (7, 18.5, True, [18.0, 19.0])
    assert got.metrics == {"is_success": 0.5}
    assert got.weights is not None
    assert all(
        torch.equal(a, b) for a, b in zip(got.weights.state().values(), network(4).state_dict().values(), strict=True)
    )
    verdicts = Verdicts()
    assert verdicts.add(got, updates=999, raw_frames=999)
    assert not verdicts.add(got, updates=999, raw_frames=999)  # sent twice
    document = verdicts.documents()[0]
    assert (document["updates"], document["raw_frames"], document["episodes"], document["seed"]) == (70, 1234, 2, 77)
    assert document["metrics"] == {"is_success": 0.5}
    again = Verdicts()
    again.restore(verdicts.documents())
    worse = Evaluation(8, 10.0, 0.3, 1.0, True, got.returns, got.lengths)
    given_up = Evaluation(9, 30.0, 0.3, 1.0, False, got.returns, got.lengths)
    assert not again.add(worse, 0, 0)
    assert not again.add(given_up, 0, 0)
    never_near = Verdicts()
    assert never_near.add(given_up, 0, 0), "the best there is"
    resumed = Verdicts()
    resumed.restore(never_near.documents())
    assert not resumed.add(replace(given_up, version=10, mean=29.0), 0, 0)
    assert resumed.add(worse, 0, 0), "played to its end"
    client.close()


def test_damaged_weights_are_dropped_and_the_version_in_use_stays(endpoints: tuple[str, str]) -> None:
    """A server that answers with a digest that is not the buffer's: the client must not let those weights out."""
    server, publisher = Server(endpoints[0]), Publisher(endpoints[1])
    client = WeightClient(*endpoints, poll_seconds=0.05)
    good = snapshot(network(1), 1, 1, {})

    def answer(weights: Weights, digest: str) -> None:
        while (request := server.receive()) is not None:
            columns = {"buffer": weights.buffer, "manifest": weights.manifest}
            server.send(
                request[0], Message("weights", {"version": weights.version, "epoch": 1, "digest": digest}, columns)
            )

    def fetch(weights: Weights, digest: str) -> Weights | None:
        fresh, mismatches = None, client.digest_mismatches
        deadline = time.monotonic() + 60.0
        while fresh is None and client.digest_mismatches == mismatches:
            assert time.monotonic() < deadline, "neither taken nor dropped"
            answer(weights, digest)
            fresh = client.poll()
        return fresh

    assert fetch(good, good.digest) is not None
    bad = snapshot(network(2), 2, 1, {})
    damaged = bad.buffer.copy()
    damaged[11] ^= 1
    assert fetch(Weights(2, 1, damaged, bad.manifest), bad.digest) is None
    assert client.digest_mismatches > 0
    assert client.version == 1
    recovered = fetch(bad, bad.digest)
    assert recovered is not None
    assert client.version == 2
    client.close()
    server.close()
    publisher.close()


def test_the_same_version_of_another_life_is_news(endpoints: tuple[str, str], server: WeightServer) -> None:
    client = WeightClient(*endpoints, poll_seconds=0.01)
    server.publish(network(1), 11, 1, {})
    eventually(lambda: (arrived := client.poll()) is not None and arrived.epoch == 1)
    server.publish(network(2), 11, 2, {})  # killed right after it had published, resumed from the checkpoint before
    eventually(lambda: (arrived := client.poll()) is not None and (arrived.version, arrived.epoch) == (11, 2))
    client.close()


def test_weights_never_go_back_to_an_earlier_epoch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A learner that was superseded answers at the address of its successor, whatever version it has reached."""
    endpoints = f"ipc://{tmp_path}/weights", f"ipc://{tmp_path}/notice"
    later, client = WeightServer(*endpoints), WeightClient(*endpoints, poll_seconds=0.01)
    later.publish(network(1), 3, 2, {})
    eventually(lambda: client.poll() is not None)
    later.close()
    earlier = WeightServer(*endpoints)
    try:
        earlier.publish(network(2), 900, 1, {})
        eventually(lambda: client.superseded >= 2, between=lambda: client.poll() and pytest.fail("it has taken them"))
        assert (client.version, client.epoch, earlier.heard_epoch) == (3, 2, 2)
        assert caplog.text.count("weights of epoch 1 are passed over: those in use are of epoch 2") == 1
    finally:
        client.close()
        earlier.close()
