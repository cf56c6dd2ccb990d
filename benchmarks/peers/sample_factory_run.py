"""A run of Sample Factory that ends with a window of measurement; what its peers have in common."""

from __future__ import annotations

import sys
from typing import Any

from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.train import make_runner
from window import Window


class Count(AlgoObserver):
    """Notes the steps after every batch, and stops the run at the end of the window."""

    def __init__(self, window: Window) -> None:
        self._window = window

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        trained = sum(runner.env_steps.values())
        if self._window.note(sum(runner.samples_collected), trained):
            runner.cfg.train_for_env_steps = 0  # asked about right after this call


def measured(configuration: Any, window: Window) -> bool:
    """Run until the window is over; False, with a line on standard error, where it ended before."""
    _, runner = make_runner(configuration)
    runner.register_observer(Count(window))
    if runner.init() == ExperimentStatus.SUCCESS:
        runner.run()
    if not window.result:
        print("Sample Factory stopped before the end of the window; its log above says why", file=sys.stderr)
    return bool(window.result)
