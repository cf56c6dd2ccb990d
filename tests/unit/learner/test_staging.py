"""Who may write to a buffer, and when: the same rules with a copy to a device and without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rljob.experience import transition_layout
from rljob.learner.staging import BufferRing, TransitionStaging, on_current_stream, transition_buffers
from rljob.observation import frames

from tests.support.devices import DEVICES, LateEvents

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


def ring(count: int) -> tuple[BufferRing[TransitionStaging], Copies]:
    copies = Copies()
    buffers = transition_buffers(LAYOUT, 4, count, CPU)
    return BufferRing([taken for _ in range(count) if (taken := buffers.take())], dict, copies), copies  # type: ignore[arg-type]


def test_a_buffer_is_not_given_out_while_it_is_being_copied() -> None:
    buffers, copies = ring(1)
    staging = buffers.take()
    assert staging is not None
    buffers.upload(staging)
    buffers.give_back(staging)  # the loop has no more use for it; the copy may still be under way
    assert buffers.take() is None
    assert buffers.available() == 1, "it will be there once the copy has finished"
    copies.events.made[0].happen()
    assert buffers.take() is staging
    assert not copies.events.made[0].waited_for, "asking is enough"


def test_one_that_is_ready_is_given_out_before_one_that_is_not() -> None:
    buffers, copies = ring(3)
    taken = [buffers.take() for _ in range(3)]
    assert buffers.take() is None
    for each in taken:
        assert each is not None
        buffers.upload(each)
        buffers.give_back(each)
    copies.events.made[1].happen()
    assert buffers.take() is taken[1]
    assert buffers.take() is None


def test_a_buffer_that_was_copied_once_is_guarded_by_its_newest_copy() -> None:
    buffers, copies = ring(1)
    for number in range(3):
        staging = buffers.take()
        assert staging is not None
        buffers.upload(staging)
        buffers.give_back(staging)
        assert buffers.take() is None
        copies.events.made[number].happen()


def test_an_owner_that_needs_one_now_waits_for_the_oldest_copy_alone() -> None:
    buffers, copies = ring(3)
    taken = [buffers.take_waiting() for _ in range(3)]
    for each in taken:
        buffers.upload(each)
        buffers.give_back(each)
    copies.events.made[2].happen()
    assert buffers.take_waiting() is taken[2], "what is ready needs no waiting"
    assert buffers.take_waiting() is taken[0]
    assert [event.waited_for for event in copies.events.made] == [True, False, False]


def test_without_a_device_a_buffer_is_the_loops_until_it_gives_it_back() -> None:
    buffers = transition_buffers(LAYOUT, 4, 1, CPU)
    staging = buffers.take()
    assert staging is not None
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
        batch, ready = buffers.upload(staging)
        batch = on_current_stream(batch, ready)
        arrived.append(batch.n_step_return.clone())
        buffers.give_back(staging)
    assert [each.unique().tolist() for each in arrived] == [[float(number)] for number in range(60)]
