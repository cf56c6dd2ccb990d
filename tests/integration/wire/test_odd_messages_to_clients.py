"""Whatever a server says that the schema allows: its client counts it and goes on, or ends with a reason.

Whatever is asked of those who give weights and verdicts, and of the pages of a role: it is refused, counted and answered.
"""

import http.client
import itertools
import json
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ChunkRefused, ReplaySession
from rljob.algorithms.apex_dqn.loss import ApeXDQN
from rljob.algorithms.shapes import shapes_of
from rljob.api.learner_status import LearnerStatus, Verdict
from rljob.inference.client import InferenceClient
from rljob.ingest.shard_status import ShardStatus
from rljob.learner import shard
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.learner.figures import Figures, Verdicts
from rljob.learner.shard_totals import replay_summary, return_to_go_by, steps_and_raw_frames
from rljob.observation import frames
from rljob.roles.learner import wanted_since
from rljob.telemetry.server import TelemetryServer
from rljob.weights.client import WeightClient
from rljob.weights.flat import Evaluation, OtherNetwork, Weights, WeightsProblem, snapshot
from rljob.weights.server import PublishedVersion, WeightServer
from rljob.wire import Client, Message, Publisher, Server, decode
from rljob.wire.schema import DRAWN, drawn_column

from tests.support.inference import answer_of, apex
from tests.support.odd_peers import CHUNKS, HONEST, chunk, every_kind, saying, tell
from tests.support.waiting import eventually, known, raising

SEEN = frames((3,), np.float32)
SECONDS = 60.0


class Told:
    """What a peer says, some at a time; ``over`` once it has been asked for more than there is."""

    def __init__(self, messages: Iterable[Any]) -> None:
        self._left, self.over = iter(messages), False

    def some(self, count: int) -> list[Any]:
        taken = list(itertools.islice(self._left, count))
        self.over = not taken
        return taken


def test_a_learner_takes_whatever_a_shard_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "SUBSCRIBE_AGAIN_SECONDS", 0.01)  # it begins anew after each that it can't bear
    subscribed = Message(
        "subscribed",
        {"service": "s", "epoch": 1, "chunks": 4, "length": 10, "frames": CHUNKS.max_frames, "state": "serving"},
        {},
    )
    mirror = Message("mirror", {**chunk(0).to_message().fields, "slot": 0, "gen": 1}, chunk(0).to_message().columns)
    drawn = np.array([(0, 1, 0.1)] * 4, DRAWN)
    columns: dict[str, Any] = {"rows": drawn_column(drawn)}
    batch = Message("batch", {"req": 1, "parts": 1, "mass": 1.0, "error": 0.0, "shard": 0}, columns)
    serving = {"service": "s", "state": "serving", "priority_total": 1.0, "limiter": {"error": 0.0}}
    stats = Message("stats", {}, {"json": np.frombuffer(json.dumps(serving).encode(), np.uint8)})
    # A message of another job ends the learner, which says so. It is tested where the session is.
    told = Told(m for m in every_kind(subscribed, mirror, batch) if m.kind != "refused" and _same_layout(m))

    def answers(message: Message) -> list[Message]:
        if message.kind == "subscribe":
            return [subscribed, mirror]
        some = told.some(3)
        if message.kind == "sample":
            number = message.fields["req"]
            said = [
                replace(each, fields={**each.fields, "req": number}) if each.kind == "batch" else each for each in some
            ]
            return [*said, Message("batch", {**batch.fields, "req": number}, columns)]
        return [*some, stats] if message.kind == "stats" else some

    server, batches = Server(f"ipc://{tmp_path}/sample"), 0
    config = ReplayClientConfig((server.endpoint,), CHUNKS, 4)
    cpu = torch.device("cpu")
    with saying(server, answers), closing(ReplayClient(config, ApeXDQN().importance_weights, cpu)) as client:
        while not told.over:
            ready = client.next(0.05)  # raises what ended the thread
            if ready is not None:
                ready.wait()
                client.give_back(ready)
                batches += 1
        assert batches > 0


def _same_layout(message: Message) -> bool:
    return message.kind != "subscribed" or (message.fields["length"], message.fields["frames"]) == (
        10,
        CHUNKS.max_frames,
    )


STATUS: dict[str, Any] = {
    "items": 100, "capacity": 1000, "bytes": 10, "inserted_total": 100, "sampled_total": 0, "episodes_total": 1,
    "steps_total": 5, "raw_frames_total": 20, "queue_depth_batches": 1.5, "queue_bound_batches": None,
    "state": "serving", "durable": True, "durability": "On", "service": "s", "stages": {"poll": 1.0},
    "actors": [{"name": "a", "age_seconds": 0.1, "stages": {"env": 1.0}}],
    "episodes": [{"return": 1.0, "greedy_half": True}] * 20,
}  # fmt: skip
ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    1.5,
    10**400,
    -(10**30),
    float("nan"),
    float("inf"),
    "many",
    [],
    [1],
    [[]],
    {},
    {"a": "b"},
]


def test_a_status_is_read_whole_or_not_at_all() -> None:
    texts = [b"", b"{", b"7", b"null", b"[]", b'"x"', b"[" * 100_000, b"\xff\xfe", b"1" * 5000]
    places = [(STATUS, name) for name in STATUS] + [(STATUS["actors"][0], name) for name in STATUS["actors"][0]]
    places += [(STATUS["episodes"][0], "return"), (STATUS["stages"], "poll")]
    for holder, name in places:
        before = holder[name]
        for value in ODD_VALUES:
            holder[name] = value
            texts.append(json.dumps(STATUS).encode())
        holder[name] = before
    read = 0
    for text in texts:
        try:
            status = ShardStatus.from_json(text)
        except ValueError:
            continue
        read += 1
        shards = [status]  # and now what the learner's loop makes of it
        replay_summary(shards)
        steps_and_raw_frames(shards)
        return_to_go_by(shards)
        figures = Figures(("loss", "norm"))
        figures.window(0.0, {}, 0, 0, 0, shards)
        figures.window(1.0, {}, 0, 0, 0, shards)
        json.dumps(LearnerStatus(**figures.section(shards, {})).to_document())
    assert 20 < read < len(texts) - 50, "some are harmless, many are not"


@contextmanager
def answered(tmp_path: Path, answers: Callable[[Message], list[Message]]) -> Iterator[InferenceClient]:
    """A client of an inference server that answers so."""
    server = Server(f"ipc://{tmp_path}/inference")
    client = InferenceClient(Client(server.endpoint), HONEST, SEEN, 1, compress=False, outputs=6)
    with saying(server, answers), closing(client):
        yield client


def ask(client: InferenceClient) -> Any:
    client.submit(0, np.zeros((4, 3), np.float32), np.zeros((4, 2, 0), np.float32))
    return answer_of(client)


def test_an_actor_takes_whatever_an_inference_server_says(tmp_path: Path) -> None:
    answer = Message(
        "inferred",
        {"group": 0, "req": 0, "pv": 1, "epoch": (1 << 63) - 1},  # later than any that it says by mistake
        {"out": np.zeros((4, 6), np.float32), "state": np.zeros((4, 2, 0), np.float32)},
    )
    told = Told(message for message in every_kind(answer) if message.kind != "refused")

    def answers(message: Message) -> list[Message]:
        some, fields = told.some(1), {"group": message.fields["group"], "req": message.fields["req"]}
        mine = [replace(m, fields={**m.fields, **fields}) if m.kind == "inferred" else m for m in some]
        return [*some, *mine, replace(answer, fields={**answer.fields, **fields})]

    with answered(tmp_path, answers) as client:
        while not told.over:
            found = ask(client)
            if found.outputs is not None:
                assert (found.outputs.shape, found.state.shape) == ((4, 6), (4, 2, 0)), "what decides on it would fail"
        assert client.unusable >= 5
        assert client._client.malformed["kind"] > 10


def test_an_actor_never_acts_with_weights_of_an_earlier_epoch(tmp_path: Path) -> None:
    """As of a server in a learner that was superseded, at an address that led to its successor a moment ago."""
    columns = {"out": np.zeros((4, 6), np.float32), "state": np.zeros((4, 2, 0), np.float32)}
    epochs = itertools.chain([2, 1, 1, 2], itertools.repeat(3))

    def answers(message: Message) -> list[Message]:
        fields = {"group": message.fields["group"], "req": message.fields["req"], "pv": 7, "epoch": next(epochs)}
        return [Message("inferred", fields, columns)]

    with answered(tmp_path, answers) as client:
        assert [ask(client).epoch for _ in range(3)] == [2, 2, 3]
        assert client.unusable == 2


def test_an_actor_takes_whatever_a_shard_says(tmp_path: Path) -> None:
    told = Told(message for message in every_kind() if message.kind != "refused")

    def welcome(message: Message) -> Message:
        fields = {"service": "s", "slot": 0, "slots": 1, "life": 1, "epoch": 1, "seq": -1, "credits": 4}
        return Message("welcome", {**fields, "session": message.fields["session"]}, {})

    def answers(message: Message) -> list[Message]:
        some = told.some(10)
        if message.kind == "hello":
            return [*some, welcome(message)]
        seq = message.fields["seq"] if message.kind == "chunk" else -1
        return [*some, Message("ack", {"seq": seq, "credits": 1, "durable": True}, {})]

    server = Server(f"ipc://{tmp_path}/ingest")
    with saying(server, answers):
        session = ReplaySession(Client(server.endpoint), HONEST, ActorFigures(HONEST).heartbeat)
        numbers = itertools.count()
        while not told.over:
            if session.unacknowledged < 8:
                session.encode(chunk(next(numbers)))
            session._next_heartbeat = 0.0
            session.poll(0.01)
            if session.welcome is not None:
                ApeXDQN().exploration(apex().parameters, session.welcome.slot, session.welcome.slots, 4)
        assert session._client.malformed["kind"] > 10
        session.close()


def test_a_shard_that_only_refuses_ends_the_actor(tmp_path: Path) -> None:
    server = Server(f"ipc://{tmp_path}/ingest")
    session = ReplaySession(Client(server.endpoint), HONEST, ActorFigures(HONEST).heartbeat, receiver="learner")
    refusals = [Message("refused", {"reason": "no"}, {})] * 5
    said = "the learner no longer accepts data from this actor: no"
    with saying(server, lambda message: refusals), closing(session._client), pytest.raises(ChunkRefused, match=said):
        eventually(lambda: session.poll(0.1), "it goes on")


REQUESTS = [
    ("GET", "//[", b"", 404),
    ("GET", "http://[::1", b"", 404),
    ("GET", "/status?" + "x" * 3000, b"", 200),
    ("GET", "/" + "x" * 70_000, b"", 414),
    ("BREW", "/status", b"", 501),
    ("POST", "/checkpoint", b"{", 400),
    ("POST", "/checkpoint", b"[]", 400),
    ("POST", "/checkpoint", b"[" * 4000, 400),
    ("POST", "/checkpoint", b"\xff" * 9, 400),
    ("POST", "/checkpoint", b"{}", 400),
    ("POST", "/checkpoint", b'{"sinceUnix": 1' + b"0" * 400 + b"}", 400),
    ("POST", "/checkpoint", b'{"sinceUnix": 1e999}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": NaN}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": -1}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": true}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": "now"}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": 12.5}', 202),
    ("POST", "/checkpoint", b"x" * 5000, 413),
    ("POST", "//[", b"{}", 404),
    ("POST", "/defect", b"{}", 500),
]


@pytest.fixture
def weight_server(tmp_path: Path) -> Iterator[WeightServer]:
    with closing(WeightServer(f"ipc://{tmp_path}/weights", f"ipc://{tmp_path}/notice")) as server:
        yield server


@pytest.fixture
def weight_client(weight_server: WeightServer) -> Iterator[WeightClient]:
    """An evaluator's, of which it is known what it wants."""
    at = weight_server.weights, weight_server.notice
    with closing(WeightClient(*at, poll_seconds=0.01, evaluation=True)) as client:
        client.shapes = shapes_of(NETWORK)
        yield client


NETWORK = torch.nn.Linear(3, 2)


def verdict(**changes: Any) -> Evaluation:
    weights = snapshot(NETWORK, 3, 1, {"updates": 30, "raw_frames": 100, "steps": 25, "mean_return": 1.0})
    judged = {"version": 3, "mean": 1.5, "standard_error": 0.5, "seconds": 2.0, "episodes": 2, **changes}
    return Evaluation(Verdict(**judged), weights)


def test_the_weight_server_takes_whatever_anybody_says(
    weight_server: WeightServer, weight_client: WeightClient
) -> None:
    weight_server.publish(NETWORK, 1, 1, {})
    tell(weight_server._server, every_kind(verdict().to_message()))
    assert min(weight_server._server.malformed[reason] for reason in ("kind", "contents")) > 10
    verdicts = Verdicts()
    for evaluation in weight_server.evaluations():  # what the learner's loop does with those that got through
        if verdicts.add(evaluation.verdict) and evaluation.weights is not None:
            evaluation.weights.load_into(NETWORK)
    assert eventually(lambda: weight_client.wait(1.0), "weights are still served").version == 1


def lying(text: bytes) -> Evaluation:
    return replace(verdict(), weights=replace(known(verdict().weights), manifest=np.frombuffer(text, np.uint8)))


def described(**changes: Any) -> bytes:
    tensors = [{"name": "weight", "shape": [2, 3], "dtype": "float32", "offset": 0, **changes}]
    return json.dumps({"tensors": tensors, "meta": {}}).encode()


UNUSABLE = {
    "no JSON": lying(b"{"),
    "nested": lying(b"[" * 100_000),
    "no tensors": lying(b"{}"),
    "a count in words": lying(b'{"tensors": [], "meta": {"updates": "many"}}'),
    "a count that is none": lying(b'{"tensors": [], "meta": {"raw_frames": null}}'),
    "a count of a thousand digits": lying(b'{"tensors": [], "meta": {"steps": 1' + b"0" * 1000 + b"}}"),
    "an infinite offset": lying(described(offset=float("inf"))),
    "an impossible shape": lying(described(shape=[0, 1 << 63])),
    "many dimensions": lying(described(shape=[1] * 1000)),
    "another network": replace(verdict(), weights=snapshot(torch.nn.Linear(4, 2), 3, 1, {})),
    "a mean that is not finite": verdict(mean=float("nan")),
    "a mean beyond any run": verdict(mean=-1e200),
    "negative seconds": verdict(seconds=-1.0),
    "a name in place of games": verdict(episodes="two"),
}


@pytest.mark.parametrize("evaluation", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_verdict_that_is_none_is_refused_and_its_evaluator_goes_on(
    weight_server: WeightServer, weight_client: WeightClient, evaluation: Evaluation
) -> None:
    weight_server.publish(NETWORK, 1, 1, {})

    def report(each: Evaluation) -> None:
        eventually(lambda: weight_client.report(each), "it is sent")
        noted = lambda: weight_client.noted == each.verdict.version  # noqa: E731
        eventually(noted, "it is not sent for ever", between=weight_client.poll)

    report(evaluation)
    assert (weight_server.evaluations(), weight_server.status()["refused_total"]) == ([], {"contents": 1})
    report(verdict(version=4, standard_error=None))
    assert [each.verdict.version for each in weight_server.evaluations()] == [4]


def test_whoever_wants_weights_takes_whatever_the_learner_says(tmp_path: Path) -> None:
    numbers = itertools.count(2)

    def good() -> list[Message]:
        return announced(snapshot(NETWORK, next(numbers), 1, {}))

    unusable = [good_digest(each) for name, each in UNUSABLE.items() if name != "another network"]
    base = good()

    def with_its_part(message: Message) -> list[Message]:
        if message.kind != "weights":
            return [message]
        renewed = {"version": next(numbers)} if message.fields["version"] == base[0].fields["version"] else {}
        fields = {**message.fields, **renewed}
        part = replace(base[1], fields={**base[1].fields, **{name: fields[name] for name in ("version", "epoch")}})
        return [replace(message, fields=fields), part]

    # After one of a later epoch all that follow are passed over, as those of a superseded learner, and not looked at.
    told = Told([*unusable, *map(with_its_part, sorted(every_kind(*base), key=of_a_later_epoch))])
    server, publisher, arrived = Server(f"ipc://{tmp_path}/weights"), Publisher(f"ipc://{tmp_path}/notice"), 0
    at = server.endpoint, publisher.endpoint
    with (
        closing(publisher),
        saying(server, lambda message: [*itertools.chain(*told.some(1)), *good()]),
        closing(WeightClient(*at, poll_seconds=0.0, retry_seconds=0.01)) as client,
    ):
        client.shapes = shapes_of(NETWORK)
        while not told.over:
            weights = client.poll()
            if weights is not None:
                weights.load_into(NETWORK)
                arrived += 1
        assert arrived > 100
        assert min(client.unusable, client.digest_mismatches) > 5
        assert client._client.malformed["kind"] > 10


def of_a_later_epoch(message: Message) -> bool:
    epoch = message.fields.get("epoch")
    return isinstance(epoch, int) and epoch > 1


def good_digest(evaluation: Evaluation) -> list[Message]:
    """The weights of a verdict as a learner would send them, with the digest that they have."""
    return announced(replace(known(evaluation.weights), version=1, epoch=1))


def announced(weights: Weights) -> list[Message]:
    return [decode(each) for each in PublishedVersion(weights, False).announcement(b"", "")]


def test_weights_of_another_network_end_the_role_at_once(
    weight_server: WeightServer, weight_client: WeightClient
) -> None:
    """They were verified, so they are what the learner built; its later ones would not fit either."""
    weight_server.publish(torch.nn.Linear(4, 2), 1, 1, {})
    said = r"version 1 are .*: weight: expected float32 \[2, 3\], got float32 \[2, 4\]"
    with pytest.raises(OtherNetwork, match=said):
        eventually(weight_client.poll, "it goes on")


def test_weights_that_nobody_can_read_again_and_again_end_the_role(
    weight_server: WeightServer, weight_client: WeightClient
) -> None:
    for version in range(1, 5):
        weight_server.publish(NETWORK, version, 1, {"steps": -1})
        eventually(lambda n=version: weight_client.unusable == n, "they are not noticed", between=weight_client.poll)
    weight_server.publish(NETWORK, 5, 1, {"steps": -1})
    with pytest.raises(WeightsProblem, match="say that steps is '-1', which is no count"):
        eventually(weight_client.poll, "it never gives up")


@pytest.mark.parametrize(("method", "path", "body", "code"), REQUESTS, ids=range(len(REQUESTS)))
def test_every_request_is_answered(method: str, path: str, body: bytes, code: int) -> None:
    defect = raising(KeyError("a defect of the role"))
    requests = {"/checkpoint": lambda note: wanted_since(note) and None, "/defect": defect}
    with TelemetryServer("learner", 0, lambda: {"updates": 7}, lambda: True, requests=requests) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        # Past the checks of the client library, which would not send it.
        connection.putrequest(method, "/", skip_accept_encoding=True)
        connection._buffer[0] = f"{method} {path} HTTP/1.1".encode()  # type: ignore[attr-defined]
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        assert answer.status == code, answer.read()
        connection.close()
        with urllib.request.urlopen(f"{server.url}/status", timeout=SECONDS) as page:
            assert json.load(page) == {"updates": 7}
