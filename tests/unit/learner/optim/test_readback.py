"""Numbers on their way from the device: in order, each once, and waited for only where the host is too far ahead."""

from __future__ import annotations

import pytest
import torch
from rljob.learner.optim.readback import DEPTH, LateNumber, Readback

from tests.support.devices import DEVICES, LateEvents

CPU = torch.device("cpu")


def numbers(value: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((4,), value), torch.full((3,), -value)


def test_what_has_arrived_comes_back_in_order_and_nobody_waits() -> None:
    events = LateEvents()
    readback = Readback(CPU, events)
    assert list(readback.push("a", *numbers(1.0))) == []
    assert list(readback.push("b", *numbers(2.0))) == []
    events.made[0].happen()
    events.made[1].happen()
    came = list(readback.push("c", *numbers(3.0)))
    assert [(item, priorities.tolist(), figures.tolist()) for item, priorities, figures in came] == [
        ("a", [1.0] * 4, [-1.0] * 3),
        ("b", [2.0] * 4, [-2.0] * 3),
    ]
    assert not any(event.waited_for for event in events.made)


def test_a_later_copy_does_not_overtake_an_earlier_one() -> None:
    events = LateEvents()
    readback = Readback(CPU, events)
    list(readback.push("a", *numbers(1.0)))
    list(readback.push("b", *numbers(2.0)))
    events.made[1].happen()
    assert list(readback.push("c", *numbers(3.0))) == []


def test_the_host_waits_for_the_oldest_once_it_is_too_far_ahead() -> None:
    events = LateEvents()
    readback = Readback(CPU, events)
    for index in range(DEPTH):
        assert list(readback.push(index, *numbers(index))) == []
    ((item, priorities, _),) = readback.push("last", *numbers(9.0))
    assert (item, priorities.tolist()) == (0, [0.0] * 4)
    assert [event.waited_for for event in events.made] == [True] + [False] * DEPTH


def test_what_is_forgotten_in_the_middle_does_not_come() -> None:
    events = LateEvents()
    readback = Readback(CPU, events)
    for index in range(3):
        list(readback.push(index, *numbers(index)))
    for event in events.made:
        event.happen()
    came = []
    for item, _, _ in readback.push("last", *numbers(9.0)):
        came.append(item)
        readback.drain()  # as the loop does that goes back to a checkpoint
    assert came == [0]


def test_what_arrives_later_is_there_without_another_push() -> None:
    events = LateEvents()
    readback = Readback(CPU, events)
    for index in range(3):
        list(readback.push(index, *numbers(index)))
    assert list(readback.arrived()) == []
    events.made[0].happen()
    assert [item for item, _, _ in readback.arrived()] == [0]
    assert not any(event.waited_for for event in events.made)
    assert [(item, figures.tolist()) for item, _, figures in readback.rest()] == [(1, [-1.0] * 3), (2, [-2.0] * 3)]
    assert [event.waited_for for event in events.made] == [False, True, True]
    assert list(readback.rest()) == []


def test_a_batch_s_number_counts_once_it_has_arrived_and_nobody_waits() -> None:
    events = LateEvents()
    late = LateNumber(CPU, events)
    assert [late.push(torch.tensor(value)) for value in (0.5, 0.25, 0.125)] == [[], [], []]
    events.made[0].happen()
    events.made[1].happen()
    assert late.push(torch.tensor(0.0)) == [0.5, 0.25]
    assert not any(event.waited_for for event in events.made)
    assert LateNumber(CPU).push(torch.tensor(0.5)) == [0.5]


def test_a_number_is_waited_for_once_the_host_is_too_far_ahead() -> None:
    events = LateEvents()
    late = LateNumber(CPU, events)
    came = [late.push(torch.tensor(float(index))) for index in range(DEPTH + 2)]
    assert came == [[]] * DEPTH + [[0.0], [1.0]]
    assert [event.waited_for for event in events.made] == [True, True] + [False] * DEPTH
    late.drain()
    events.made[-1].happen()
    assert late.push(torch.tensor(9.0)) == []


@pytest.mark.parametrize("device", DEVICES)
def test_every_number_comes_back_as_it_was(device: torch.device) -> None:
    readback, came = Readback(device), []
    for index in range(50):
        priorities, figures = numbers(float(index))
        came += list(readback.push(index, priorities.to(device), figures.to(device)))
    assert [item for item, _, _ in came] == list(range(len(came)))
    assert len(came) >= 50 - DEPTH
    assert all(priorities.tolist() == [float(item)] * 4 for item, priorities, _ in came)
