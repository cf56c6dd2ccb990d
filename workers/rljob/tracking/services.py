"""A run in MLflow or in W&B.

A point that is sent a second time after a kill, with the same name, step, time and value, is the same row to MLflow's server.
W&B numbers the rows of a run, and says at the start how many it has. The n-th row is always the n-th point, so after a kill the
rest is sent from there, and what a killed process had under way falls on its own row.
"""

import hashlib
import logging
import os
import posixpath
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from rljob.errors import UsageError
from rljob.tracking.points import Point
from rljob.tracking.tracker import TrackedRun, flat

log = logging.getLogger(__name__)

_TAG = "rljob.run"
_MOST_METRICS, _MOST_PARAMS = 1000, 100
"""What a server takes in one request."""
_LONGEST_PARAM, _LONGEST_NAME = 6000, 250
_SECONDS = 10
"""For an answer of a server, and the longest wait before it is asked again."""


def name_there(name: str) -> str:
    """The name of a figure or of a field as MLflow takes it, a path: letters, some signs, and nothing like ``..`` or ``//``."""
    return posixpath.normpath("/" + re.sub(r"[^\w\-. :/]", "_", name)[:_LONGEST_NAME]).strip("/") or "_"


def names_there(names: Iterable[str]) -> dict[str, str]:
    """Names, each as MLflow takes it and no two the same: one that would be another's has a digest behind it."""
    plain = {name: name_there(name) for name in names}
    times = Counter(plain.values())
    for name, there in plain.items():
        if there != name and times[there] > 1:
            plain[name] = f"{there[: _LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return plain


class InMLflow:
    """A `Tracker`."""

    def __init__(self, run: TrackedRun) -> None:
        # The client's own: seven tries of two minutes each. What fails here is tried again later.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(_SECONDS))
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        asked = run.asked.mlflow
        assert asked is not None
        self._client = MlflowClient(asked.uri)
        self._metric = Metric
        self._uri = asked.uri
        self._sent = run.sent
        self._found = self._found_or_made(asked.experiment, run)
        self._run_id = self._found.info.run_id
        config, there = flat(run.config()), self._found.data
        names, known = names_there(config), {**there.params, **there.tags}
        values = {names[name]: str(value)[:_LONGEST_PARAM] for name, value in config.items()}
        missing = iter([Param(*each) for each in values.items() if each[0] not in there.params])
        while some := list(islice(missing, _MOST_PARAMS)):
            self._client.log_batch(self._run_id, params=some)
        for name, value in values.items():
            if known.get(name, value) != value:  # of a parameter MLflow takes no second value
                self._client.set_tag(self._run_id, name, value)
                log.warning(
                    "%s is %s now, which MLflow has as a tag; it keeps the parameter, %s",
                    name,
                    value,
                    there.params[name],
                )

    @property
    def url(self) -> str:
        """The run's page, where the server has one."""
        experiment = self._found.info.experiment_id
        return f"{self._uri}/#/experiments/{experiment}/runs/{self._run_id}" if self._uri.startswith("http") else ""

    def send(self, points: Sequence[Point]) -> None:
        """Send the points, as many in one request as a server takes."""
        waiting: list[Any] = []
        times: list[float] = []
        for point in points:
            found = list(self._metrics(point))
            if len(waiting) + len(found) > _MOST_METRICS:
                self._write(waiting, times)
                waiting, times = [], []
            waiting += found
            times.append(point.time_unix)
        self._write(waiting, times)

    def finish(self, state: str) -> None:
        """Say how the run has ended."""
        if state:
            status = {"Complete": "FINISHED", "Failed": "FAILED"}.get(state, "KILLED")
            self._client.set_terminated(self._run_id, status)

    def _found_or_made(self, name: str, run: TrackedRun) -> Any:
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        wanted = f"tags.`{_TAG}` = '{run.identity}'"
        found = self._client.search_runs([number], wanted, order_by=["attributes.start_time ASC"], max_results=1)
        if found:
            self._client.update_run(found[0].info.run_id, "RUNNING")
            return found[0]
        self._sent.adjust(
            0, 0.0
        )  # what another server or experiment has got, or a run that was deleted there, is not here
        return self._client.create_run(number, run_name=run.job.metadata.name, tags={_TAG: run.identity})

    def _metrics(self, point: Point) -> Iterator[Any]:
        when = round(point.time_unix * 1000)
        values = {**point.values, "raw_frames": float(point.raw_frames)}
        for name, there in names_there(values).items():
            yield self._metric(there, values[name], when, point.raw_frames)

    def _write(self, metrics: Sequence[Any], times: Sequence[float]) -> None:
        for begin in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[begin : begin + _MOST_METRICS])
        self._sent.add(*times)


_INTERRUPTED = 255
"""What W&B's client reports of a program that was interrupted, which W&B shows as killed."""


class InWandb:
    """A `Tracker`. Where W&B is offline, each process begins the local directory anew, so that the last is whole."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        asked = run.asked.wandb
        assert asked is not None
        wandb.teardown()  # whatever an attempt before has left
        mode = wandb.setup().settings.mode  # by WANDB_MODE, or by `wandb offline` where we are
        if mode == "disabled":  # its client would take every point and drop it
            raise UsageError(
                "it is disabled by WANDB_MODE or `wandb disabled`; WANDB_MODE=offline keeps points for later"
            )
        offline = mode in ("offline", "dryrun")
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
                x_file_stream_retry_wait_max_seconds=float(_SECONDS),
                x_file_stream_timeout_seconds=float(_SECONDS),
                x_file_stream_transmit_interval=5.0,
                x_graphql_retry_wait_max_seconds=float(_SECONDS),
                x_graphql_timeout_seconds=float(_SECONDS),
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
