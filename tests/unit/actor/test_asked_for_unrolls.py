"""In iterations an unroll begins once it was asked for in all environments, and with weights that are new enough."""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from rljob.inference.server import InferenceServer

from tests.support.inference import Given, Player, ppo, serving

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
