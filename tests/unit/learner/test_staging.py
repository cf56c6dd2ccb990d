"""Who may write to a buffer, and when: the same rules with a copy to a device and without one."""

from typing import Any

import numpy as np
import pytest
import torch
from rljob.experience import transition_layout
from rljob.learner.staging import BufferRing, on_current_stream, transition_buffers
from rljob.observation import frames

from tests.support.devices import DEVICES, LateEvent, LateEvents

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
