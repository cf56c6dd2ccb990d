"""Numbers on their way from the device: in order, each once, and waited for only where the host is too far ahead."""

import pytest
import torch
from rljob.learner.optim.on_device import DEPTH, LateNumber, Readback

from tests.support.devices import DEVICES, LateEvents

CPU = torch.device("cpu")


def figures_of(number: int, device: torch.device = CPU) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((4,), float(number), device=device), torch.full((3,), -float(number), device=device)


class Numbers:
    """A readback, the ends of its copies, and what came back: the number and figures of each push."""

    def __init__(self, pushed: int = 0) -> None:
        self.events = LateEvents()
        self.readback = Readback(CPU, self.events)
        self.count = 0
        assert [self.push() for _ in range(pushed)] == [[]] * pushed

    def push(self) -> list[int]:
        number, self.count = self.count, self.count + 1
        return self.came(self.readback.push(number, *figures_of(number)))

    def came(self, given: object) -> list[int]:
        """The numbers of what comes, which is whole."""
        found = []
        for number, priorities, figures in given:  # type: ignore[attr-defined]
            assert (priorities.tolist(), figures.tolist()) == ([float(number)] * 4, [-float(number)] * 3)
            found.append(number)
        return found

    @property
    def waited_for(self) -> list[bool]:
        return [event.waited_for for event in self.events.made]


@pytest.mark.parametrize(
    ("pushed", "arrived", "comes", "waited_for"),
    [
        pytest.param(2, (0, 1), [0, 1], [False] * 3, id="what has arrived comes back in order"),
        pytest.param(2, (1,), [], [False] * 3, id="a later copy does not overtake an earlier one"),
        pytest.param(DEPTH, (), [0], [True] + [False] * DEPTH, id="the host waits once it is too far ahead"),
    ],
)
def test_what_comes_back_and_who_waits_for_it(
    pushed: int, arrived: tuple[int, ...], comes: list[int], waited_for: list[bool]
) -> None:
    numbers = Numbers(pushed)
    for index in arrived:
        numbers.events.made[index].happen()
    assert (numbers.push(), numbers.waited_for) == (comes, waited_for)


def test_what_is_forgotten_in_the_middle_does_not_come() -> None:
    numbers = Numbers(pushed=3)
    for event in numbers.events.made:
        event.happen()
    came = []
    for item, _, _ in numbers.readback.push("last", torch.zeros(4), torch.zeros(3)):
        came.append(item)
        numbers.readback.drain()  # as the loop does that goes back to a checkpoint
    assert came == [0]


def test_what_arrives_later_is_there_without_another_push() -> None:
    numbers = Numbers(pushed=3)
    assert numbers.came(numbers.readback.arrived()) == []
    numbers.events.made[0].happen()
    assert (numbers.came(numbers.readback.arrived()), numbers.waited_for) == ([0], [False] * 3)
    assert (numbers.came(numbers.readback.rest()), numbers.waited_for) == ([1, 2], [False, True, True])
    assert list(numbers.readback.rest()) == []


def test_a_batch_s_number_counts_once_it_has_arrived_and_nobody_waits() -> None:
    late = LateNumber(CPU, events := LateEvents())
    assert [late.push(torch.tensor(value)) for value in (0.5, 0.25, 0.125)] == [[], [], []]
    events.made[0].happen()
    events.made[1].happen()
    assert late.push(torch.tensor(0.0)) == [0.5, 0.25]
    assert not any(event.waited_for for event in events.made)
    assert LateNumber(CPU).push(torch.tensor(0.5)) == [0.5]


def test_a_number_is_waited_for_once_the_host_is_too_far_ahead() -> None:
    late = LateNumber(CPU, events := LateEvents())
    assert [late.push(torch.tensor(float(index))) for index in range(DEPTH + 2)] == [[]] * DEPTH + [[0.0], [1.0]]
    assert [event.waited_for for event in events.made] == [True, True] + [False] * DEPTH
    late.drain()
    events.made[-1].happen()
    assert late.push(torch.tensor(9.0)) == []


@pytest.mark.parametrize("device", DEVICES)
def test_every_number_comes_back_as_it_was(device: torch.device) -> None:
    readback, numbers = Readback(device), Numbers()
    came = [k for number in range(50) for k in numbers.came(readback.push(number, *figures_of(number, device)))]
    assert came == list(range(len(came)))
    assert len(came) >= (50 if device == CPU else 50 - DEPTH), "on a CPU at once"
