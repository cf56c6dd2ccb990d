"""Real shards, real sockets and a mirror on the learner's device: every row of every batch is a transition that an actor sent."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from rljob.algorithms.prioritized_replay import importance_weights
from rljob.experience import Segment
from rljob.learner.assembly import ReadyBatch
from rljob.learner.client import ReplayClient, ReplayClientConfig
from rljob.learner.device_mirror import DeviceMirror
from rljob.replay.table import Capacity

from tests.support.devices import DEVICES
from tests.support.experience import CHUNKS
from tests.support.replay_peers import Actor, Shard, config, random_chunk
from tests.support.threads import running
from tests.support.waiting import eventually

CAPACITY = Capacity(300)
BATCH = 32
Transition = tuple[np.ndarray, np.ndarray, int]


class Sent:
    """What actors may have sent, by the policy version and the n-step return of each transition, which no two share."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, float], Transition] = {}
        self._numbers: dict[tuple[str, str], int] = {}

    def find(self, actors: list[Actor], version: int, returned: float) -> Transition:
        if (version, returned) not in self._known:
            for actor in actors:
                first, end = self._numbers.get((actor.name, actor.inc), 0), actor.sequence  # which goes on growing
                for number in range(first, end):
                    self._add(random_chunk(number, actor.name, actor.inc))
                self._numbers[actor.name, actor.inc] = end
        return self._known[version, returned]

    def _add(self, chunk: Segment) -> None:
        for step in range(chunk.steps):
            stacks = [
                chunk["frames"][at[step] - CHUNKS.stack + 1 : at[step] + 1]
                for at in (chunk["observation"].astype(int), chunk["next_observation"].astype(int))
            ]
            name = chunk.policy_version, float(chunk["n_step_return"][step])
            self._known[name] = (stacks[0], stacks[1], int(chunk["action"][step]))


def check(batch: ReadyBatch, sent: Sent, actors: list[Actor]) -> None:
    here = batch.wait()
    observation, following = here.observation.cpu().numpy(), here.next_observation.cpu().numpy()
    for row, (version, returned) in enumerate(
        zip(batch.policy_version.tolist(), here.n_step_return.tolist(), strict=True)
    ):
        first, second, action = sent.find(actors, version, returned)
        np.testing.assert_array_equal(observation[row], first)
        np.testing.assert_array_equal(following[row], second)
        assert int(here.action[row]) == action


@contextmanager
def learning(shards: list[Shard], device: torch.device) -> Iterator[ReplayClient]:
    settings = ReplayClientConfig(tuple(shard.config.sample for shard in shards), CHUNKS, BATCH)
    mirror = DeviceMirror(CHUNKS, CAPACITY.chunks(CHUNKS), len(shards), device)
    client = ReplayClient(settings, importance_weights, device, mirror=mirror)
    try:
        yield client
    finally:
        client.close()


def learn(client: ReplayClient, batches: int, sent: Sent, actors: list[Actor]) -> set[int]:
    """Takes so many batches, looks at every row, gives new priorities; the shards that rows came of."""
    seen: set[int] = set()
    random = np.random.default_rng(0)
    for _ in range(batches):
        batch = eventually(lambda: client.next(0.2), "no batch", between=lambda: None)
        check(batch, sent, actors)
        seen |= {part.shard for part in batch.parts}
        client.learned(batch, random.lognormal(size=BATCH).astype(np.float32))
        client.give_back(batch)
    return seen


@pytest.mark.timeout(120)
@pytest.mark.parametrize("device", DEVICES)
def test_batches_are_of_what_was_sent_while_it_is_being_replaced(device: torch.device) -> None:
    with tempfile.TemporaryDirectory(prefix="rljob-") as folder:
        shards = [
            Shard(config(shard=n, capacity=CAPACITY, ingest=f"ipc://{folder}/i{n}", sample=f"ipc://{folder}/s{n}"))
            for n in range(2)
        ]
        for shard in shards:
            shard.start()
        actors = [Actor(shard.config.ingest, f"actor-{shard.config.shard}") for shard in shards]

        def act(stop: threading.Event) -> None:
            while not stop.is_set():
                for actor in actors:
                    actor.send_all(1)

        sent = Sent()
        try:
            with learning(shards, device) as client:
                with running(act):
                    assert learn(client, 150, sent, actors) == {0, 1}
                    held = CAPACITY.steps
                    eventually(lambda: min(actor.sequence for actor in actors) * CHUNKS.length > 3 * held, "chunks")
                    learn(client, 30, sent, actors)
                assert client.resubscriptions == 0
                shards[1].end()
                shards[1].start()  # from nothing: its part of the mirror is begun anew
                with running(act):
                    eventually(lambda: client.resubscriptions > 0, "a new subscription")
                    eventually(lambda: learn(client, 5, sent, actors) == {0, 1}, "rows of both", between=lambda: None)
        finally:
            for actor in actors:
                actor.client.close()
            for shard in shards:
                shard.end()
