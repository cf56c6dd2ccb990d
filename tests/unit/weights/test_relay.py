"""Weights from another actor of the node: real sockets with CURVE, and relays that lie, sleep or are none."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rljob.weights import client as weight_client
from rljob.weights.client import WeightClient
from rljob.weights.relay import Relay, RelayTree
from rljob.weights.server import WeightServer
from rljob.wire import Client, Message, RoleKeys, Server, load_keys, write_keys

from tests.support.odd_peers import saying
from tests.support.waiting import eventually
from tests.unit.weights.test_weights import Numbers, assert_those_of, news

PART = 1 << 10
COUNT = 5_000
SIZE = 4 * COUNT


class Keys:
    def __init__(self, folder: Path) -> None:
        write_keys(folder / "keys")
        self.learner: RoleKeys = load_keys(folder / "keys", "learner")
        self.actor: RoleKeys = load_keys(folder / "keys", "actor")


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture
def learner(keys: Keys) -> Iterator[WeightServer]:
    server = WeightServer("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", keys.learner.server(), part_bytes=PART)
    with closing(server):
        yield server


def member(learner: WeightServer, keys: Keys, node: str = "n") -> WeightClient:
    return WeightClient(
        learner.weights,
        learner.notice,
        keys.actor.client("learner"),
        poll_seconds=0.05,
        relay=Relay("tcp://127.0.0.1:*", keys.actor.server()),
        node=node,
        of_relays=keys.actor.client("actor"),
    )


def test_one_actor_of_a_node_asks_the_learner_and_the_others_ask_one_another(
    learner: WeightServer, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_client, "RELAY_SECONDS", 0.5)
    with ExitStack() as closed:
        actors = [closed.enter_context(closing(member(learner, keys, node))) for node in "nnnnnnnm"]
        for actor in actors:  # each makes itself known, before there is anything
            eventually(lambda one=actor: one.poll() is None and one.answered)
        for version in (1, 2, 3):
            if version == 3:
                actors.pop(0).close()  # four of its node have it as their relay, and another takes its place
            before = learner.sent_bytes
            learner.publish(Numbers(COUNT, version), version, 1, {})
            got: dict[int, Any] = {}

            def all_have(into: dict[int, Any] = got) -> bool:
                for number, actor in enumerate(actors):
                    if (fresh := actor.poll()) is not None:
                        into[number] = fresh
                return len(into) == len(actors)

            eventually(all_have)
            for weights in got.values():
                assert_those_of(weights, Numbers(COUNT, version))
            copies = (learner.sent_bytes - before) / SIZE
            assert 2 < copies < (3 if version < 3 else 4), (
                "once a node, and not once an actor; once more for a lost relay"
            )
        assert learner.status()["encodings_total"] == 3


@contextmanager
def claims(learner: WeightServer, keys: Keys, endpoint: str) -> Iterator[None]:
    """Somebody is the first of node n, and says that others find weights at ``endpoint``."""
    fetch = Message("fetch", {"have": 0, "evaluation": False, "node": "n", "serves": endpoint}, {})
    with Client(learner.weights, keys.actor.client("learner")) as first:
        eventually(lambda: first.send(fetch))
        eventually(lambda: first.receive(1.0))
        yield


@contextmanager
def relay_that(answers: Callable[[Message], list[Message]], keys: Keys) -> Iterator[tuple[str, list[int]]]:
    """Its endpoint, and the parts that it was asked for."""
    server, asked = Server("tcp://127.0.0.1:*", keys.actor.server()), list[int]()

    def noted(request: Message) -> list[Message]:
        asked.append(int(request.fields["index"]))
        return answers(request)

    with saying(server, noted):
        yield server.endpoint, asked


def lying(request: Message) -> list[Message]:
    return [Message("part", request.fields, {"buffer": np.ones(PART, np.uint8)})]


@pytest.mark.parametrize(
    ("answers", "why"), [(lying, "has not the digest announced"), (lambda request: [], "has sent nothing for 0.")]
)
def test_a_relay_that_fails_costs_one_timeout_and_is_not_asked_again(
    learner: WeightServer,
    keys: Keys,
    answers: Callable[[Message], list[Message]],
    why: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weight_client, "RELAY_SECONDS", 0.3)
    with relay_that(answers, keys) as (endpoint, asked), claims(learner, keys, endpoint):
        learner.publish(Numbers(COUNT), 1, 1, {})
        with closing(member(learner, keys)) as actor:
            assert_those_of(news(actor), Numbers(COUNT))
            first = list(asked)
            learner.publish(Numbers(COUNT, 2), 2, 1, {})
            assert_those_of(news(actor), Numbers(COUNT, 2))
    assert first
    assert asked == first, "it is passed over"
    assert caplog.text.count(why) == 1


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1", "nonsense", "tcp://", "tcp://127.0.0.1:999999", "ipc://x"])
def test_a_relay_that_is_none_holds_nobody_up(
    learner: WeightServer, keys: Keys, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_client, "RELAY_SECONDS", 0.3)
    with claims(learner, keys, endpoint):
        for count, version in ((COUNT, 1), (3, 2), (0, 3)):  # many parts, one, none
            learner.publish(Numbers(count, version), version, 1, {})
            with closing(member(learner, keys)) as actor:
                assert_those_of(news(actor), Numbers(count, version))


def test_a_relay_that_is_ahead_says_so_at_once(learner: WeightServer, keys: Keys) -> None:
    relay = Relay("tcp://127.0.0.1:*", keys.actor.server())
    part = {"version": 5, "epoch": 1, "averaged": False, "index": 0}
    held = Message("part", part, {"buffer": np.ones(8, np.uint8)})
    relay.expect(held)
    relay.hold(held)
    with closing(relay), Client(relay.endpoint, keys.actor.client("actor")) as client:
        for fields, kind in ((part, "part"), ({**part, "version": 4}, "current")):
            eventually(lambda asked=fields: client.send(Message("want", asked, {})))
            assert eventually(lambda: client.receive(5.0)).kind == kind
        assert client.send(Message("goodbye", {"actor": "a", "inc": "i"}, {}))
        assert eventually(lambda: client.receive(5.0)).kind == "refused"


def test_no_actor_has_more_than_four_to_serve_and_one_that_is_gone_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("rljob.weights.relay.time.monotonic", lambda: now[0])
    tree = RelayTree()

    def parents(actors: range) -> list[str]:
        return [tree.parent({"node": "n", "serves": f"tcp://a{number}"}) for number in actors]

    assert parents(range(12)) == ["", *["tcp://a0"] * 4, *["tcp://a1"] * 4, *["tcp://a2"] * 3]
    assert tree.parent({"node": "m", "serves": "tcp://b"}) == tree.parent({}) == ""
    now[0] = 40.0
    parents(range(1, 12))
    now[0] = 80.0
    assert parents(range(1, 7)) == ["", *["tcp://a1"] * 4, "tcp://a2"]
    assert tree.parent({"node": "m", "serves": "tcp://b", "lost": "tcp://a1"}) == "", (
        "of another node: nobody's business"
    )
    assert tree.parent({"node": "n", "serves": "tcp://a3", "lost": "tcp://a1"}) == "tcp://a2"
    assert parents(range(1, 3)) == ["tcp://a4", ""], "the lost one is the last, and gets what there is"
    assert "tcp://a1" not in parents(range(2, 12))
