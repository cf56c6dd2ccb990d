"""The process that sends one run to one tracker: reads what is new, hands it over, and tries again for ever.

``python -m rljob.tracking.sender RUN wandb|mlflow``, or a `Child` of a run's controller, with the run's identity in a variable.
SIGTERM ends it; then it sends the rest first, for a minute at most. With ``--once`` it ends when all is sent. SIGALRM ends one
whose client hangs, and whoever started it starts it again.

A client that failed is replaced by a new one, which adjusts the run's `State` to what its server has. W&B says how many points it
has and when the last of them was, so the rest is sent from there. To MLflow a point that is sent a second time, with the same
name, step, time and value, is the same row.
"""

import argparse
import contextlib
import fcntl
import logging
import os
import posixpath
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Final

import typer
from setproctitle import setproctitle

from rljob.api import RLJob, load_manifest
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError
from rljob.files import replace
from rljob.strict_json import dumps
from rljob.telemetry.recorder import METRICS_FILE
from rljob.telemetry.run_folder import EFFECTIVE_FILE
from rljob.tracking.points import Follower, Point, noted_ending
from rljob.tracking.tracker import (
    FOLDER,
    HUNG_SECONDS,
    IDENTITY_VARIABLE,
    TRACKERS,
    State,
    config,
    flat,
    state_in,
    wanted,
)

log = logging.getLogger(__name__)

_TAG = "rljob.run"
_MOST_METRICS, _MOST_PARAMS = 1000, 100
"""What a server takes in one request."""
_LONGEST_PARAM, _LONGEST_NAME = 6000, 250
_SECONDS = 10
"""For an answer of a server, and the longest wait before it is asked again."""


@cache
def name_there(name: str) -> str:
    """The name of a figure or of a field as MLflow takes it, a path: letters, some signs, but no colon,
    which older servers refuse, and nothing like ``..`` or ``//``."""
    return posixpath.normpath("/" + re.sub(r"[^\w\-. /]", "_", name)[:_LONGEST_NAME]).strip("/") or "_"


class InMLflow:
    """The run ``identity`` of ``job`` at its MLflow server. ``state``: of what was sent there, as far as it is known."""

    def __init__(self, job: RLJob, identity: str, _folder: Path, state: State) -> None:
        # The client's own: seven tries of two minutes each. What fails here is tried again later.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(_SECONDS))
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        asked = job.spec.tracking.mlflow if job.spec.tracking else None
        assert asked is not None
        self._client, self._metric = MlflowClient(asked.uri), Metric
        experiment = self._client.get_experiment_by_name(asked.experiment)
        number = experiment.experiment_id if experiment else self._client.create_experiment(asked.experiment)
        which = f"tags.`{_TAG}` = '{identity}'"
        found = self._client.search_runs([number], which, order_by=["attributes.start_time ASC"], max_results=1)
        if found:
            run = found[0]
            self._client.update_run(run.info.run_id, "RUNNING")
        else:
            # What another server or experiment has got, or a run that was deleted there, is not here.
            state.points, state.last = 0, 0.0
            run = self._client.create_run(number, run_name=job.metadata.name, tags={_TAG: identity})
        self._run_id = run.info.run_id
        state.url = f"{asked.uri}/#/experiments/{number}/runs/{self._run_id}" if asked.uri.startswith("http") else ""
        values = {name_there(name): str(value)[:_LONGEST_PARAM] for name, value in flat(config(job)).items()}
        missing = [Param(*each) for each in values.items() if each[0] not in run.data.params]
        for begin in range(0, len(missing), _MOST_PARAMS):
            self._client.log_batch(self._run_id, params=missing[begin : begin + _MOST_PARAMS])
        known = {**run.data.params, **run.data.tags}
        for name, value in values.items():
            if known.get(name, value) != value:  # of a parameter MLflow takes no second value
                self._client.set_tag(self._run_id, name, value)
                log.warning(
                    "%s is %s now, which MLflow has as a tag; it keeps the parameter, %s",
                    name,
                    value,
                    run.data.params[name],
                )

    def send(self, points: Sequence[Point]) -> None:
        """Send the points, as many in one request as a server takes."""
        metrics = [
            self._metric(name_there(name), value, round(point.time_unix * 1000), point.raw_frames)
            for point in points
            for name, value in {**point.values, "raw_frames": float(point.raw_frames)}.items()
        ]
        for begin in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[begin : begin + _MOST_METRICS])

    def finish(self, state: str) -> None:
        """Say how the run has ended, as in ``outcome.json``; nothing of an empty ``state``, where it may go on."""
        if state:
            status = {"Complete": "FINISHED", "Failed": "FAILED"}.get(state, "KILLED")
            self._client.set_terminated(self._run_id, status)


_INTERRUPTED = 255
"""What W&B's client reports of a program that was interrupted, which W&B shows as killed."""


class InWandb:
    """The same at W&B. Where that is offline, each process begins the local directory in ``folder`` anew, so that the last is
    whole."""

    def __init__(self, job: RLJob, identity: str, folder: Path, state: State) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        asked = job.spec.tracking.wandb if job.spec.tracking else None
        assert asked is not None
        wandb.teardown()  # whatever an attempt before has left
        mode = wandb.setup().settings.mode  # by WANDB_MODE, or by `wandb offline` where we are
        if mode == "disabled":  # its client would take every point and drop it
            raise UsageError(
                "it is disabled by WANDB_MODE or `wandb disabled`; WANDB_MODE=offline keeps points for later"
            )
        offline = mode in ("offline", "dryrun")
        if offline:
            shutil.rmtree(folder / "wandb", ignore_errors=True)
        (folder / "wandb").mkdir(exist_ok=True)
        self._run = wandb.init(
            project=asked.project,
            entity=asked.entity,
            group=asked.group,
            tags=asked.tags or None,
            name=job.metadata.name,
            id=identity,
            resume=None if offline else "allow",
            dir=folder,
            config=config(job),
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
        state.points, state.last = self._run.starting_step, float(self._run.summary.get("_timestamp") or 0.0)
        state.url = self._run.url or str(self._run.dir).removesuffix("/files")  # what `wandb sync` takes

    def send(self, points: Sequence[Point]) -> None:
        """Hand the points over to W&B's own process, which sends them."""
        for point in points:
            row = {**point.values, "raw_frames": point.raw_frames, "_timestamp": point.time_unix}
            if "mean_return" in row:  # what CleanRL's dashboards and openrlbenchmark look for
                row |= {"charts/episodic_return": row["mean_return"], "global_step": point.raw_frames}
            self._run.log(row)

    def finish(self, state: str) -> None:
        """Wait until W&B has everything, and say how the run has ended."""
        self._run.finish(exit_code={"": 0, "Complete": 0, "Failed": 1}.get(state, _INTERRUPTED))


Client = InMLflow | InWandb
CLIENTS: Final[dict[str, type[Client]]] = {"wandb": InWandb, "mlflow": InMLflow}
"""By the names of `TRACKERS`; the client's package is loaded when one is made."""

LOOK_SECONDS: Final = 2.0
LONGEST_WAIT_SECONDS: Final = 15.0
"""Between two tries while a server is away."""
LAST_SECONDS: Final = 60
_NICENESS: Final = 10
_MOST_POINTS: Final = 500
_LONGEST_PROBLEM: Final = 300


def send(
    path: Path,
    state: State,
    connect: Callable[[], Client],
    tell: Callable[[], None],
    *,
    stop: threading.Event,
    once: bool,
    ended: Callable[[], str],
) -> None:
    """Send the points in ``path`` until ``stop`` is set, or ``once`` was asked for, and all of them are sent.

    Args:
        state: how it goes, brought up to date; ``tell`` is called after every change.
        connect: opens a connection and adjusts ``state`` to what the server has; it is called again after every failure.
        ended: how the run has ended, as a client's ``finish`` takes it.
    """
    client: Client | None = None
    wait_seconds = LOOK_SECONDS
    while not state.done:
        points: list[Point] = []
        try:
            if client is None:
                client = connect()
                follower = Follower(path, state.last)
            if points := follower.read(_MOST_POINTS):
                client.send(points)
                state.points, state.last = state.points + len(points), points[-1].time_unix
            elif once or stop.is_set():
                client.finish(ended())
                state.done = True
            wait_seconds, state.problem = LOOK_SECONDS, ""
        except Exception as error:
            client, points = None, []
            wait_seconds = min(LONGEST_WAIT_SECONDS, 2 * wait_seconds)
            if (said := in_words(error)) != state.problem:
                state.problem = said
                log.warning("%s; trying again", said, exc_info=log.isEnabledFor(logging.DEBUG))
        tell()
        if not points and not state.done:
            time.sleep(1.0) if stop.is_set() else stop.wait(wait_seconds)


def in_words(error: Exception) -> str:
    """What an error says, in one line of bounded length: its beginning and its end, where clients put the cause. What is in the
    user's hands needs no name of a type."""
    kind, words = type(error).__name__, " ".join(str(error).split())
    said = words if isinstance(error, UsageError) else f"{kind}: {words}" if words else kind
    return said if len(said) <= _LONGEST_PROBLEM else f"{said[:100]} ... {said[105 - _LONGEST_PROBLEM :]}"


@contextlib.contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Only one process sends a run to a tracker. Raises UsageError where another one does."""
    with (folder / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process sends this run to {TRACKERS[name]} now: {folder / name}.json") from None
        yield


def main(words: Sequence[str]) -> None:
    """Send a run until told to end."""
    parser = argparse.ArgumentParser("rljob tracker")
    parser.add_argument("run", type=Path)
    parser.add_argument("tracker", choices=TRACKERS)
    parser.add_argument("--job", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--once", action="store_true")
    asked = parser.parse_args(words)
    setproctitle(f"rljob tracker {asked.tracker}")
    os.nice(_NICENESS)
    logging.basicConfig(format="%(asctime)s %(message)s")
    signal.alarm(HUNG_SECONDS)
    stop = threading.Event()

    def end(*_: object) -> None:
        stop.set()
        signal.alarm(LAST_SECONDS)

    signal.signal(signal.SIGTERM, end)
    folder = asked.run / FOLDER
    file = folder / f"{asked.tracker}.json"
    with one_line_errors():
        folder.mkdir(exist_ok=True)
        with alone(folder, asked.tracker):
            before = state_in(file)
            state = State(before.get("points", 0), before.get("last", 0.0))

            def connect() -> Client:
                job = load_manifest(asked.job or asked.run / EFFECTIVE_FILE, asked.set)
                wanted(job.spec.tracking)
                return CLIENTS[asked.tracker](job, os.environ[IDENTITY_VARIABLE], folder, state)

            def tell() -> None:
                replace(file, dumps({"pid": os.getpid(), "time_unix": time.time(), **asdict(state)}), essential=False)
                if not stop.is_set():
                    signal.alarm(HUNG_SECONDS)

            ended = partial(noted_ending, asked.run)
            send(asked.run / METRICS_FILE, state, connect, tell, stop=stop, once=asked.once, ended=ended)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except typer.Exit as end:  # the line is written; a traceback behind it would be taken for the reason
        sys.exit(end.exit_code)
