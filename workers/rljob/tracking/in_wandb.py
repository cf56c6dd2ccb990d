"""A run in W&B.

W&B numbers the rows of a run, and says at the start how many it has. The n-th row is always the n-th point, so after a kill the
rest is sent from there, and what a killed process had under way falls on its own row.
"""

import os
import shutil
from collections.abc import Sequence

from rljob.tracking.points import Point
from rljob.tracking.tracker import TrackedRun

_INTERRUPTED = 255
"""What W&B's client reports of a program that was interrupted, which W&B shows as killed."""
_SECONDS = 10.0
"""For an answer of the server, and the longest wait before it is asked again."""


class InWandb:
    """A `Tracker`. Where W&B is offline, each process begins the local directory anew, so that the last is whole."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        asked = run.asked.wandb
        assert asked is not None
        wandb.teardown()  # whatever an attempt before has left
        offline = wandb.setup().settings.mode in (
            "offline",
            "dryrun",
        )  # by WANDB_MODE, or by `wandb offline` where we are
        if offline:
            shutil.rmtree(run.folder / "wandb", ignore_errors=True)
        (run.folder / "wandb").mkdir(exist_ok=True)
        self._run = wandb.init(
            project=asked.project,
            entity=asked.entity,
            group=asked.group,
            tags=asked.tags or None,
            name=run.job.metadata.name,
            id=run.identity,
            resume=None if offline else "allow",
            dir=run.folder,
            config=run.config(),
            allow_val_change=True,
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                init_timeout=3 * _SECONDS,
                x_disable_stats=True,
                x_file_stream_retry_max=1_000_000,
                x_file_stream_retry_wait_max_seconds=_SECONDS,
                x_file_stream_timeout_seconds=_SECONDS,
                x_file_stream_transmit_interval=5.0,
                x_graphql_retry_wait_max_seconds=_SECONDS,
                x_graphql_timeout_seconds=_SECONDS,
                x_save_requirements=False,
                x_skip_transaction_log=not offline,
            ),
        )
        self._run.define_metric("*", step_metric="raw_frames")
        self._sent = run.sent
        self._sent.adjust(self._run.starting_step, float(self._run.summary.get("_timestamp") or 0.0))

    @property
    def url(self) -> str:
        """The run's page, or the directory that `wandb sync` takes."""
        return self._run.url or str(self._run.dir).removesuffix("/files")

    def send(self, points: Sequence[Point]) -> None:
        """Hand the points over to W&B's own process, which sends them."""
        for point in points:
            self._sent.add(point.time_unix)  # first, so that the count is never less than what W&B may have
            row = {**point.values, "raw_frames": point.raw_frames, "_timestamp": point.time_unix}
            if "mean_return" in row:  # what CleanRL's dashboards and openrlbenchmark look for
                row |= {"charts/episodic_return": row["mean_return"], "global_step": point.raw_frames}
            self._run.log(row)

    def finish(self, state: str) -> None:
        """Wait until W&B has everything, and say how the run has ended."""
        self._run.finish(exit_code={"": 0, "Complete": 0, "Failed": 1}.get(state, _INTERRUPTED))
