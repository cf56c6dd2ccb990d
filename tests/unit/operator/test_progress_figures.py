"""``status.progress``: the queue's fill and the policy lag, which are unknown rather than zero where the learner says nothing."""

from __future__ import annotations

import pytest

from tests.support.controller import running, sample


@pytest.mark.parametrize(
    ("depth", "bound", "percent"),
    [(0.0, 8.0, 0), (2.0, 8.0, 25), (9.0, 8.0, 100), (None, 8.0, None), (2.0, None, None)],
)
def test_the_fill_of_the_queue(depth: float | None, bound: float | None, percent: int | None) -> None:
    figures = {"queue_depth_batches": depth, "queue_bound_batches": bound, "policy_lag_updates_p95": 12.4}
    given = {name: value for name, value in figures.items() if value is not None}
    controller = running()
    controller.look(60.0, learner=sample(controller.now + 60.0, 2000, **given))
    assert controller.status.progress.queue_fill_percent == percent
    assert controller.status.progress.policy_lag_updates == 12


def test_without_figures_both_are_unknown() -> None:
    controller = running()
    controller.look(60.0, learner=sample(controller.now + 60.0, 2000, queue_depth_batches=1.0, queue_bound_batches=2.0))
    assert controller.status.progress.queue_fill_percent == 50
    controller.look(60.0, learner=None)
    progress = controller.status.progress
    assert (progress.queue_fill_percent, progress.policy_lag_updates, progress.learner_updates) == (None, None, 2000)


def test_what_would_add_most_is_said_once_the_figures_tell() -> None:
    controller = running()
    figures = {"steps_per_second": 1000.0, "learner_wait_fraction": 0.5, "actors_blocked_fraction": 0.0}
    actors = [{"name": "actor-0"}, {"name": "actor-1"}]
    controller.look(60.0, learner=sample(controller.now + 60.0, 2000, actors=actors, **figures))
    said = controller.status.progress.next_unit
    assert said == (
        "an actor on a core of its own would add 50 % to 1,000 steps/s; the knee of one more actor is at 4.0 of them, 2 play"
    )
    still = {**figures, "steps_per_second": 20.0, "state": "Evaluating"}
    controller.look(60.0, learner=sample(controller.now + 60.0, 2000, actors=actors, **still))
    assert controller.status.progress.next_unit == said, "while training stands still"
    controller.look(60.0, learner=sample(controller.now + 60.0, 3000))
    assert controller.status.progress.next_unit == ""
