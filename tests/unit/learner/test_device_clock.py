"""The device's own account of its time: all of it, by the stage that asked for it, without waiting for it."""

from __future__ import annotations

import time

import pytest
import torch
from rljob.learner.device import DeviceStageClock

from tests.support.devices import needs_cuda

STAGES = ("wait", "update", "other")


class Device:
    """A device that does what it is given one after the other, later than it was given."""

    def __init__(self) -> None:
        self.now = 0.0
        """The host's time, in seconds."""
        self.busy_until = 0.0
        self.events = 0

    def work(self, seconds: float) -> None:
        """The host asks for work and goes on at once."""
        self.busy_until = max(self.busy_until, self.now) + seconds

    def event(self) -> Event:
        self.events += 1
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.at = 0.0

    def record(self) -> None:
        self.at = max(self.device.busy_until, self.device.now)

    def query(self) -> bool:
        return self.at <= self.device.now

    def elapsed_time(self, later: Event) -> float:
        assert later.query(), "torch raises for an event that has not happened"
        return 1e3 * (later.at - self.at)


def timed() -> tuple[Device, DeviceStageClock]:
    device = Device()
    return device, DeviceStageClock(STAGES, device.event)


def test_work_counts_where_it_was_asked_for_and_all_of_it_is_the_walls_time() -> None:
    device, clock = timed()
    for _ in range(1000):
        clock.enter("wait")
        device.now += 0.001  # a batch is there soon
        clock.enter("update")
        device.work(0.010)
        device.now += 0.002  # asking takes the host this long; it goes on before the device has begun
        clock.enter("other")
        device.now = max(device.now, device.busy_until - 0.030)  # never more than three updates ahead
    clock.stop()
    device.now += 1.0
    clock.enter("wait")
    seconds = clock.device_seconds()
    assert seconds["update"] == pytest.approx(10.0, rel=0.01)
    assert sum(seconds.values()) == pytest.approx(10.0, rel=0.05)
    assert device.events < 30, "events are used again"


def test_a_device_that_waits_for_the_host_does_so_in_the_stage_that_kept_it() -> None:
    device, clock = timed()
    for _ in range(100):
        clock.enter("wait")
        device.now += 0.030
        clock.enter("update")
        device.work(0.010)
        device.now += 0.010
    clock.stop()
    assert clock.device_seconds() == pytest.approx({"wait": 3.0, "update": 1.0, "other": 0.0}, rel=0.05)


def test_what_is_under_way_is_not_waited_for() -> None:
    device, clock = timed()
    clock.enter("update")
    device.work(5.0)
    clock.enter("other")
    assert clock.device_seconds() == dict.fromkeys(STAGES, 0.0)
    device.now = 5.0
    clock.enter("wait")
    assert clock.device_seconds()["update"] == 5.0


def test_time_without_a_stage_is_nobodys() -> None:
    device, clock = timed()
    for _ in range(2):
        clock.enter("update")
        device.now += 1.0
        clock.stop()
        device.now += 7.0
    clock.enter("wait")
    assert clock.device_seconds() == {"wait": 0.0, "update": 2.0, "other": 0.0}


@needs_cuda
def test_on_a_gpu_the_sum_is_the_walls_time() -> None:
    clock = DeviceStageClock(STAGES)
    matrix = torch.randn(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    while time.perf_counter() - start < 2.0:
        clock.enter("wait")
        time.sleep(0.002)
        clock.enter("update")
        for _ in range(10):
            matrix = matrix @ matrix / 2048
        torch.cuda.current_stream().synchronize()
    clock.stop()
    torch.cuda.synchronize()
    wall = time.perf_counter() - start
    clock.enter("other")
    assert sum(clock.device_seconds().values()) == pytest.approx(wall, rel=0.05)
