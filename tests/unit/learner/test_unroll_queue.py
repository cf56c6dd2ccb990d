"""The learner's queue over real sockets: batches, back-pressure, staleness, epochs, reconnections, and that nothing gets lost.

Who may write to a buffer, and when: the same rules with a copy to a device and without one.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from rljob.acting import ActorIdentity
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ReplaySession
from rljob.experience import Segment, transition_layout
from rljob.learner.staging import BufferRing, on_current_stream, transition_buffers
from rljob.learner.unroll_queue import UnrollQueue, UnrollQueueConfig
from rljob.observation import frames
from rljob.weights.flat import VersionLog
from rljob.wire import Client

from tests.support.devices import DEVICES, LateEvent, LateEvents
from tests.support.experience import UNROLLS, changed, make_unroll
from tests.support.waiting import eventually

_NAMES = itertools.count()


def unroll(number: int, version: int = 1, epoch: int = 1) -> Segment:
    random = np.random.default_rng(number)
    step = random.normal(size=3).astype(np.float32)
    return make_unroll(
        "actor-0",
        number,
        incarnation="i1",
        policy_version=version,
        epoch=epoch,
        frames=random.integers(0, 256, (5, 2, 2), dtype=np.uint8),
        action=np.full(3, number, np.int32),
        reward=step,
        discount=np.full(3, 0.9, np.float32),
        log_prob=-np.abs(step),
    )


class Rig:
    """A queue and one actor's session, in one process."""

    def __init__(self, **changes: Any) -> None:
        self.endpoint = f"inproc://unrolls-{next(_NAMES)}"
        self.versions = VersionLog(1)
        values: dict[str, Any] = {"batch_size": 2, "capacity": 4, "credits": 8, **changes}
        self.queue = UnrollQueue(
            UnrollQueueConfig(self.endpoint, UNROLLS, **values), self.versions, torch.device("cpu")
        )
        self.session = self.connect()

    def connect(self) -> ReplaySession:
        identity = ActorIdentity("actor-0", "i1", 1)
        return ReplaySession(Client(self.endpoint), identity, ActorFigures(identity).heartbeat)

    def send(self, *unrolls: Segment) -> None:
        for each in unrolls:
            self.session.encode(each)

    def until(self, happened: Callable[[], object]) -> None:
        eventually(happened, self.queue.statuses, between=lambda: self.session.poll(0.01))

    def ready(self) -> Any:
        """The next batch."""
        self.until(lambda: self.queue.ready_batches)
        return self.queue.next(5.0)

    def learned(self) -> list[int]:
        """The actions of the next batch, which is given back."""
        batch = self.ready()
        self.queue.give_back(batch)
        return batch.batch.action[0].tolist()

    def counts(self) -> dict[str, Any]:
        status: dict[str, Any] = self.queue.section()["queue"].to_document()
        assert status["received"] == status["learned"] + sum(status["dropped"].values()) + status["in_flight"]
        return status


def unrolls(count: int, **changes: int) -> list[Segment]:
    return [unroll(number, **changes) for number in range(count)]


@contextmanager
def rig(*, published: int = 1, **changes: Any) -> Iterator[Rig]:
    """``published``: the epoch of the learner's first version; 0 for none yet."""
    one = Rig(**changes)
    if published:
        one.versions.note(1, 0)
        one.queue.published(published)
    try:
        yield one
    finally:
        one.session.close()
        one.queue.close()


def test_batches_are_the_unrolls_in_order_with_their_frames_stacked() -> None:
    with rig() as one:
        sent = unrolls(4)
        one.send(*sent)
        one.until(lambda: one.session.unacknowledged == 0)
        for first in (0, 2):
            ready = one.queue.next(5.0)
            batch = ready.wait()
            assert batch.action.tolist() == [[first, first + 1]] * 3
            for b in range(2):
                for t in range(4):
                    np.testing.assert_array_equal(batch.observation[b, t].numpy(), sent[first + b]["frames"][t : t + 2])
                np.testing.assert_array_equal(batch.reward[:, b].numpy(), sent[first + b]["reward"])
            one.queue.give_back(ready)
        one.until(lambda: one.counts()["learned"] == 4)
        assert (
            one.counts().items() >= {"received": 4, "learned": 4, "dropped": {}, "waiting": 0, "in_flight": 0}.items()
        )


def test_a_full_queue_holds_its_actors_back() -> None:
    with rig() as one:
        one.send(*unrolls(20))
        one.until(lambda: one.counts()["waiting"] == 4)
        for _ in range(20):
            one.session.poll(0.01)
        # four wait, two are a ready batch
        assert (one.counts()["received"], one.session.waiting) == (6, 14)
        assert [one.learned() for _ in range(10)] == [[first, first + 1] for first in range(0, 20, 2)]
        one.until(lambda: one.session.unacknowledged == 0)


def test_a_queue_that_drops_keeps_the_newest() -> None:
    with rig(drops_oldest=True) as one:
        one.send(*unrolls(20))
        one.until(lambda: one.session.unacknowledged == 0 and one.counts()["received"] == 20)
        assert one.counts()["dropped"] == {"overflow": 14}
        assert [one.learned() for _ in range(3)][1:] == [[16, 17], [18, 19]]


def test_unrolls_that_are_too_old_or_of_an_earlier_life_are_dropped_and_counted() -> None:
    with rig(max_lag_updates=5, capacity=8) as one:
        one.versions.note(2, updates=6)
        one.send(unroll(0), unroll(1, version=2), unroll(2, version=2, epoch=9), unroll(3, version=2))
        assert one.learned() == [1, 3]
        one.until(lambda: one.counts()["dropped"] == {"stale": 1, "epoch": 1})


def test_a_ready_batch_of_an_earlier_life_is_not_handed_out() -> None:
    with rig() as one:
        one.send(*unrolls(2))
        one.until(lambda: one.queue.ready_batches)
        one.queue.published(epoch=2)
        assert one.queue.next(0.1) is None
        one.until(lambda: one.counts()["dropped"] == {"epoch": 2})


def test_before_the_first_version_unrolls_of_any_epoch_measure_the_input_and_none_is_learned_from() -> None:
    """Actors that outlived a learner have weights of its epoch until the new one publishes, which may take such unrolls."""
    with rig(published=0, epoch=3) as one:
        one.send(*unrolls(4, epoch=2))
        ready = one.ready()
        assert one.session.welcome.epoch == 3
        one.queue.pass_over(ready)
        one.until(lambda: one.queue.ready_batches)
        one.queue.published(3)
        assert (one.queue.next(0.1), one.queue.heard_epoch) == (None, 2)
        one.send(unroll(4, epoch=4))  # of a learner after this one
        one.until(lambda: one.queue.heard_epoch == 4)


def test_an_actor_that_comes_back_brings_nothing_twice() -> None:
    with rig(capacity=8) as one:
        one.send(*unrolls(3))
        one.until(lambda: one.counts()["received"] == 3)
        before = one.session
        one.session = one.connect()  # the same incarnation over a new connection, sending everything again
        one.send(*unrolls(5))
        one.until(lambda: one.session.unacknowledged == 0 and one.counts()["received"] == 5)
        before.close()


def test_a_contradictory_unroll_is_refused_and_the_rest_goes_on() -> None:
    with rig() as one:
        one.send(changed(unroll(0), reward=np.full(3, np.nan, np.float32)), unroll(1), unroll(2))
        assert one.learned() == [1, 2]
        one.until(lambda: one.queue.section()["rejected_total"] == {"invalid": 1})
        assert "reward is not finite" in next(iter(one.session.refused))


def test_a_batch_that_is_only_looked_at_counts_as_dropped() -> None:
    with rig() as one:
        one.send(*unrolls(2))
        ready = one.ready()
        assert ready.newest_frames().shape == (6, 2, 2)
        one.queue.pass_over(ready)
        one.until(lambda: one.counts()["dropped"] == {"centring": 2})


def test_a_capacity_below_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="no batch would ever be complete"):
        UnrollQueueConfig("inproc://x", UNROLLS, batch_size=4, capacity=3)


@pytest.mark.parametrize("adapts", [False, True])
def test_weights_that_travel_long_are_waited_for_unless_the_user_set_the_limit(adapts: bool) -> None:
    """Unrolls arrive 80 updates old, where 50 are allowed for the queue alone."""
    with rig(lag_limit_adapts=adapts, max_lag_updates=50) as one:
        one.versions.note(2, updates=80)
        one.send(*unrolls(4))
        one.until(lambda: one.queue.ready_batches if adapts else one.counts()["dropped"] == {"stale": 4})
        one.until(lambda: one.queue.section()["lag_limit_updates"] == (130 if adapts else 50))
        one.until(lambda: one.counts()["arrival_age_updates"] == 80)


CPU = torch.device("cpu")
LAYOUT = transition_layout(10, frames((6,), np.uint8, 2), 3)


class Copies:
    """Stands in for a side stream: a copy is under way until its event is told to happen, and takes what is there by then."""

    def __init__(self) -> None:
        self.events = LateEvents()

    def copy(self, tensors: dict[str, torch.Tensor], batch_of: Any) -> tuple[Any, Any]:
        event = self.events()
        event.record()
        return batch_of(dict(tensors)), event


def ring(count: int) -> tuple[Any, list[LateEvent]]:
    """Buffers, and the ends of their copies."""
    copies, buffers = Copies(), transition_buffers(LAYOUT, 4, count, CPU)
    return BufferRing([buffers.take() for _ in range(count)], dict, copies), copies.events.made  # type: ignore[arg-type]


def used(buffers: Any, staging: Any) -> None:
    """Copied, and given back at once: the loop has no more use for it, and its copy may still be under way."""
    buffers.upload(staging)
    buffers.give_back(staging)


def test_a_buffer_is_not_given_out_while_it_is_being_copied() -> None:
    buffers, copies = ring(1)
    used(buffers, staging := buffers.take())
    assert buffers.take() is None
    assert buffers.available() == 1, "it will be there once the copy has finished"
    copies[0].happen()
    assert buffers.take() is staging
    assert not copies[0].waited_for, "asking is enough"
    used(buffers, staging)
    assert buffers.take() is None, "its newest copy guards it"


def test_one_that_is_ready_is_given_out_before_one_that_is_not() -> None:
    buffers, copies = ring(3)
    taken = [buffers.take() for _ in range(3)]
    assert buffers.take() is None
    for each in taken:
        used(buffers, each)
    copies[1].happen()
    assert [buffers.take(), buffers.take()] == [taken[1], None]


def test_an_owner_that_needs_one_now_waits_for_the_oldest_copy_alone() -> None:
    buffers, copies = ring(3)
    taken = [buffers.take_waiting() for _ in range(3)]
    for each in taken:
        used(buffers, each)
    copies[2].happen()
    assert buffers.take_waiting() is taken[2], "what is ready needs no waiting"
    assert buffers.take_waiting() is taken[0]
    assert [event.waited_for for event in copies] == [True, False, False]


def test_without_a_device_a_buffer_is_the_loops_until_it_gives_it_back() -> None:
    buffers = transition_buffers(LAYOUT, 4, 1, CPU)
    staging = buffers.take()
    batch, ready = buffers.upload(staging)
    assert ready is None
    assert batch.observation.data_ptr() == staging.tensors["observation"].data_ptr(), "nothing is copied"
    assert buffers.take() is None
    buffers.give_back(staging)
    assert buffers.take() is staging


@pytest.mark.parametrize("device", DEVICES)
def test_every_batch_arrives_as_it_was_written(device: torch.device) -> None:
    """Buffers are written to again as soon as they may be; a copy that had begun too late would show the next batch."""
    buffers = transition_buffers(LAYOUT, 256, 2, device)
    arrived = []
    for number in range(60):
        while (staging := buffers.take()) is None:
            pass
        staging.arrays["n_step_return"][:] = number
        arrived.append(on_current_stream(*buffers.upload(staging)).n_step_return.clone())
        buffers.give_back(staging)
    assert [each.unique().tolist() for each in arrived] == [[float(number)] for number in range(60)]
