"""The session against a shard that restarts, stays silent or withholds credit; and how an actor's columns are compressed.

In iterations an unroll begins once it was asked for in all environments, and with weights that are new enough.

Acting in groups: shared draws, environments counted through, and which server an actor asks.
"""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rljob.actor.session import SILENCE_SECONDS, TRIED_SEGMENTS, Compression
from rljob.api import EnvironmentParameters
from rljob.api.roles import member_of
from rljob.choices import GroupedDraws
from rljob.envs import make_vector_environment
from rljob.envs.base import GroupedEnvironment
from rljob.inference.server import InferenceServer

from tests.support.inference import Given, Player, ppo, serving
from tests.support.session_pair import Pair, a_chunk


@pytest.fixture
def pair() -> Iterator[Pair]:
    """One that is connected."""
    pair = Pair()
    pair.until(lambda: pair.session.connected)
    yield pair
    pair.close()


def arrive(pair: Pair, *numbers: int, seconds_each: float = 0.0) -> None:
    """These are sent, and all that was sent is acknowledged."""
    for number in numbers:
        pair.session.encode(a_chunk(number))
    pair.until(lambda: pair.session.unacknowledged == 0, seconds_each)


def test_hello_welcome_chunk_ack(pair: Pair) -> None:
    welcome = pair.session.welcome
    assert (welcome.slot, welcome.slots, welcome.epoch, pair.session.credits) == (2, 4, 9, 4)
    for number in range(10):
        pair.session.encode(a_chunk(number))
    assert pair.session.held_transitions == 30
    arrive(pair)
    assert (pair.numbers(), pair.session.durable) == (list(range(10)), True)
    assert (pair.session.chunks_sent, pair.session.chunks_acknowledged, pair.session.chunks_resent) == (10, 10, 0)
    assert pair.session.acknowledged_transitions == pair.session.produced_transitions == 30


def test_it_knows_the_oldest_weights_that_are_asked_for(closes: Any) -> None:
    pair = closes(Pair())
    assert pair.session.least_version is None
    pair.shard.least_version = 3
    pair.until(lambda: pair.session.connected)
    assert pair.session.least_version == 3, "a welcome says so"
    pair.shard.least_version = 4
    arrive(pair, 0)
    assert pair.session.least_version == 4, "and an acknowledgement"
    pair.shard.least_version = 2
    pair.shard.grant_now()
    pair.turn()
    assert pair.session.least_version == 2, "and a credit; a learner may go back"


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_not_acknowledged_is_sent_again(pair: Pair, restarts: bool) -> None:
    pair.session.encode(a_chunk(0))
    pair.session.poll()
    pair.shard.mute = True
    pair.shard.serve()
    pair.shard.mute = False
    if restarts:
        pair.shard.restart(keep_log=False)
    arrive(pair, seconds_each=0.5)
    assert (pair.numbers()[-1], pair.session.chunks_resent, pair.shard.kinds().count("hello")) == (0, 1, 2)


def test_silence_is_noticed(pair: Pair) -> None:
    pair.shard.mute = True
    pair.turn(3, seconds=SILENCE_SECONDS)
    assert not pair.session.connected


def test_heartbeats_go_on_every_second(pair: Pair) -> None:
    pair.turn(50, seconds=0.1)
    assert pair.shard.kinds().count("heartbeat") in (5, 6)
    pair.session.close()
    pair.shard.serve()
    assert pair.shard.kinds()[-1] == "goodbye"


def standing(random: np.random.Generator) -> NDArray[Any]:
    """A rich picture that stands still, with a small thing that moves."""
    frames = np.repeat(random.integers(0, 256, (1, 84, 84), dtype=np.uint8), 56, axis=0)
    for number in range(56):
        frames[number, number : number + 4, 10:14] = 255
    return frames


def moving(random: np.random.Generator) -> NDArray[Any]:
    """A plain picture full of small things, all of which move."""
    frames = np.zeros((56, 84, 84), np.uint8)
    for frame, several in zip(frames, random.integers(0, 84, (56, 40, 2)), strict=True):
        frame[several[:, 0], several[:, 1]] = 200
    return frames


def looked_at(way: str, **columns: NDArray[Any]) -> Compression:
    found = Compression(tuple(columns), way)
    for _ in range(TRIED_SEGMENTS):
        assert way != "Auto" or not found.deltas, "nothing is chosen before all have been seen"
        found.look(columns)
    return found


def test_auto_takes_what_was_smaller() -> None:
    random = np.random.default_rng(0)
    seen = {"frames": standing(random), "frames1": moving(random), "pv": np.arange(50, dtype=np.int64)}
    assert looked_at("Auto", **seen).deltas == {"frames"}
    assert looked_at("LZ4", **seen).deltas == set()
    assert looked_at("Delta", **seen).deltas == set(seen)


def test_small_rows_and_columns_that_are_not_there_are_left_as_they_are() -> None:
    found = Compression(("frames", "octets"), "Auto")
    for _ in range(TRIED_SEGMENTS + 3):
        found.look({"octets": np.zeros((56, 8), np.uint8)})
    assert found.deltas == set()


SETUP = ppo()
ENVS, LENGTH = 8, SETUP.parameters.unroll_length


class Scene:
    """A player that has begun; ``after`` says what happens once its sink was polled so often within a turn."""

    def __init__(self, player: Player, weights: Given) -> None:
        self.player, self.weights, self.sink = player, weights, player.sink
        self.stop = threading.Event()
        self.polls = 0
        self.states: set[str] = set()
        self._events: dict[int, Callable[[], None]] = {}
        self.sink.poll = self._poll  # type: ignore[method-assign]
        player.loop.start()

    def after(self, polls: int, event: Callable[[], None]) -> None:
        self.polls, self._events = 0, {polls: event}

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.player.loop.turn(self.stop)

    def ask(self, **asked: int | None) -> None:
        """``credits`` for as many unrolls, of weights of ``least_version`` at least."""
        for name, value in asked.items():
            setattr(self.sink, name, value)

    def brings(self, version: int) -> None:
        """These weights come next."""
        self.weights.next = SETUP.weights(version)

    @property
    def steps(self) -> int:
        """The steps of each environment."""
        return self.player.figures.steps // ENVS

    @property
    def versions(self) -> list[int]:
        """The versions of the steps in the unrolls of the first environment."""
        found: list[Any] = [unroll["policy_version"] for unroll in self.sink.chunks if unroll.environment == 0]
        return np.concatenate(found).tolist() if found else []

    def _poll(self, timeout_seconds: float = 0.0) -> None:
        self.polls += 1
        self.states.add(self.player.figures.state)
        self._events.pop(self.polls, lambda: None)()


def local(version: int, least_version: int) -> Scene:
    weights = Given(SETUP.weights(version))
    return Scene(Player(SETUP, ENVS, None, weights, least_version), weights)


@contextlib.contextmanager
def central(version: int, least_version: int) -> Iterator[Scene]:
    weights = Given(SETUP.weights(version))
    server = InferenceServer(f"inproc://{uuid.uuid4().hex}", SETUP.model(), weights, 0.002)
    with serving(server):
        yield Scene(Player(SETUP, ENVS, server.endpoint, Given(), least_version), weights)


def test_an_unroll_waits_for_a_credit_of_each_environment_and_goes_on_without_more() -> None:
    scene = local(3, 3)
    scene.ask(credits=ENVS - 1)
    scene.after(4, lambda: scene.ask(credits=ENVS))
    scene.turns(1)
    assert (scene.steps, scene.polls) == (1, 4)
    assert "Blocked" in scene.states
    scene.ask(credits=0)
    scene.turns(LENGTH - 1)
    assert len(scene.sink.chunks) == ENVS
    scene.after(3, scene.stop.set)
    scene.turns(1)
    assert scene.steps == LENGTH, "none was asked for"


def test_an_unroll_waits_for_new_weights_and_is_played_with_those() -> None:
    scene = local(3, 4)
    scene.after(3, lambda: scene.brings(4))
    scene.turns(4)
    scene.brings(5)
    scene.turns(LENGTH)
    assert scene.versions == [4] * LENGTH
    scene.turns(LENGTH - 4)
    assert scene.versions == [4] * LENGTH + [5] * LENGTH


def test_who_asks_for_nothing_is_not_waited_for() -> None:
    scene = local(3, 0)
    scene.ask(credits=0, least_version=None)
    scene.turns(2 * LENGTH)
    assert len(scene.sink.chunks) == 2 * ENVS


@pytest.mark.parametrize(("least", "brought", "played"), [(4, 4, 4), (9, None, 3)])
def test_a_server_is_asked_until_it_answers_with_new_weights_or_the_learner_goes_back(
    least: int, brought: int | None, played: int
) -> None:
    """Back to earlier weights: it asks for older ones, while an answer of newer ones is still being waited for."""
    with central(3, least) as scene:
        scene.after(3, lambda: scene.brings(brought) if brought else scene.ask(least_version=2))
        scene.turns(LENGTH)
        assert scene.versions == [played] * LENGTH


def test_a_server_is_not_asked_before_the_unroll_was() -> None:
    with central(3, 3) as scene:
        scene.turns(LENGTH)
        asked = scene.player.client.requests
        scene.ask(credits=0)
        scene.after(3, scene.stop.set)
        scene.turns(1)
        assert scene.player.client.requests == asked
        scene.stop.clear()
        scene.brings(5)
        scene.ask(credits=ENVS, least_version=5)
        scene.turns(LENGTH)
        assert scene.versions == [3] * LENGTH + [5] * LENGTH


def test_an_unroll_goes_on_with_what_it_began_with_where_a_server_answers() -> None:
    with central(3, 3) as scene:
        scene.turns(2)
        scene.ask(credits=0, least_version=4)  # its unroll will be too old; the next one waits
        scene.turns(LENGTH - 2)
        assert scene.versions == [3] * LENGTH


def test_groups_share_what_all_would_draw_at_once() -> None:
    alone, shared = np.random.default_rng(3), GroupedDraws(np.random.default_rng(3), 2)
    for _ in range(4):
        whole = alone.random(6), alone.integers(0, 5, 6), alone.random((6, 3))
        parts = []
        for group in range(2):
            shared.turn_of(group)
            parts.append((shared.random(3), shared.integers(0, 5, 3), shared.random((3, 3))))
        for index, expected in enumerate(whole):
            np.testing.assert_array_equal(np.concatenate([part[index] for part in parts]), expected)


def test_a_group_that_draws_otherwise_draws_afresh() -> None:
    """Weights that arrive between two groups: the first acted at random, the second by the network."""
    shared = GroupedDraws(np.random.default_rng(3), 2)
    shared.turn_of(0)
    shared.integers(0, 5, 3)
    shared.turn_of(1)
    assert (shared.random(3).shape, shared.integers(0, 5, 3).shape) == ((3,), (3,))


@pytest.mark.parametrize(
    ("actor", "servers", "asked"),
    [("actor-0", 1, 0), ("actor-7", 1, 0), ("actor-7", 3, 1), ("pong-actor-12", 5, 2), ("somebody", 4, 0)],
)
def test_actors_spread_over_servers(actor: str, servers: int, asked: int) -> None:
    assert member_of(actor, servers) == asked


def test_grouped_environments_play_as_one_vector(any_seed: Callable[[int], int], closes: Any) -> None:
    parameters = EnvironmentParameters(atari={"frame_size": 42}, max_episode_raw_frames=60)
    whole = closes(make_vector_environment("ALE/Pong-v5", parameters, 4, 9))
    groups = [make_vector_environment("ALE/Pong-v5", parameters, 2, 9 + 2 * group) for group in range(2)]
    grouped = closes(GroupedEnvironment(groups))
    np.testing.assert_array_equal(whole.reset(), grouped.reset())
    random, ended = np.random.default_rng(any_seed(0)), 0
    for _ in range(40):
        actions = random.integers(0, whole.spec.num_actions, 4)
        one, other = whole.step(actions), grouped.step(actions)
        np.testing.assert_array_equal(one.observation, other.observation)
        np.testing.assert_array_equal(one.truncated, other.truncated)
        assert (one.raw_frames, one.episodes) == (other.raw_frames, other.episodes)
        rows = one.terminated | one.truncated
        ended += int(rows.sum())
        if rows.any():
            np.testing.assert_array_equal(one.final_observation[rows], other.final_observation[rows])
    assert ended > 0


def test_unequal_groups_are_refused() -> None:
    sizes = [make_vector_environment("CartPole-v1", EnvironmentParameters(), size, 0) for size in (1, 2)]
    with pytest.raises(ValueError, match=r"groups of \[1, 2\] environments"):
        GroupedEnvironment(sizes)
