"""On which of two devices a learner makes its updates: the one where they were measured to be faster.

There is one device here, for which torch has two names. What differs between them is made so: other threads, or more work.
"""

import time
from collections.abc import Callable

import pytest
import torch
from rljob.algorithms.compute import DeviceCompute, Measured
from rljob.algorithms.registry import algorithm
from rljob.learner import state
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.plan import Plan, fastest_device

from tests.unit.learner.learner_builders import PLAIN, SPEC, assert_equal, parameters, updater

THERE, HERE = torch.device("cpu:0"), torch.device("cpu")
METHOD = algorithm("ApeXDQN")


def ready(device: torch.device, *, threads: int = 1, hidden_units: int = 16, batch_size: int = 16) -> Plan:
    params, shared = parameters(hidden_units=hidden_units, batch_size=batch_size), DataParallelThreads(threads)
    made = updater(params, threads=shared, device=device)

    def example() -> object:
        return METHOD.example(SPEC, params, made.online, device)

    return Plan(made, Measured(DeviceCompute(device, PLAIN), {"cpu fp32": 1.0}), shared, example)


def nothing(device: torch.device) -> None:
    """An update on trial that takes no time."""


@pytest.mark.parametrize("slow", [THERE, HERE])
def test_the_faster_one_is_taken_and_both_figures_are_told(slow: torch.device) -> None:
    def made(device: torch.device) -> Plan:
        return ready(device, hidden_units=768, batch_size=256) if device == slow else ready(device)

    chosen = fastest_device((THERE, HERE), made, nothing)
    assert chosen.updater.device == chosen.measured.place.device != slow
    seconds = chosen.measured.seconds
    assert list(seconds) == ["cpu:0 fp32", "cpu fp32"]
    assert seconds[f"{slow} fp32"] == max(seconds.values()) > 2 * min(seconds.values())


def test_other_threads_are_another_configuration_and_nothing_is_learned_from_a_trial() -> None:
    plain = ready(HERE)
    chosen = fastest_device((THERE, HERE), lambda device: ready(device, threads=1 + (device == HERE)), nothing)
    assert all(taken > 0 for taken in chosen.measured.seconds.values())
    untouched, tried = state.capture(plain.updater), state.capture(chosen.updater)
    assert chosen.updater.updates == 0
    assert_equal({name: tried[name] for name in untouched}, untouched)
    moments = tried.keys() - untouched.keys()
    assert not any(tried[name].any() for name in moments), "an optimiser's moments are those of no update"


def test_what_is_far_behind_in_its_first_update_is_not_gone_into() -> None:
    asked: list[torch.device] = []

    def made(device: torch.device) -> Plan:
        asked.append(device)
        return ready(device)

    chosen = fastest_device((THERE, HERE), made, lambda device: time.sleep(0.6))
    assert asked == [THERE]
    assert chosen.updater.device == THERE
    assert chosen.measured.seconds["cpu, tried once"] > 0.5


def test_an_only_device_is_not_tried() -> None:
    def refused(device: torch.device) -> None:
        raise AssertionError(f"nothing is to be compared with {device}")

    one: Callable[[torch.device], Plan] = ready
    assert fastest_device((HERE,), one, refused).measured.seconds == {"cpu fp32": 1.0}, "those of its own ways"
