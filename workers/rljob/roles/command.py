"""``rljob worker ROLE``: one role of a job as a process, the same in a pod and under the local supervisor."""

import faulthandler
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rljob.api import load_manifest
from rljob.api.exit_codes import EXIT_CONFIGURATION
from rljob.api.roles import Role
from rljob.archive import enter
from rljob.command_errors import Debug, one_line_errors
from rljob.data_plane import require_data_plane
from rljob.roles.options import KEEP_SECONDS, RoleOptions, check_options, check_protocol, role_function
from rljob.threads import start_contained
from setproctitle import setproctitle, setthreadtitle
from typer.core import TyperCommand

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


@contextmanager
def stopping_on_signals(stop: threading.Event) -> "Iterator[None]":
    """Set ``stop`` on SIGTERM and SIGINT, also where a user's code has put handlers of its own in the place of ours; those from
    before come back at the end.

    A block that ends in good order after a signal raises `typer.Exit` with 128 + its number, 143 or 130: the code with which any
    process ends that a signal has told to, so that the end is not taken for the process's own.
    """
    log = logging.getLogger("rljob.worker")
    told: list[int] = []
    ours, pythons = socket.socketpair()
    pythons.setblocking(False)

    def hear() -> None:
        while number := ours.recv(1):  # Python writes the number of each signal, whatever handles it
            if number[0] in before:
                log.info("%s: draining", signal.Signals(number[0]).name)
                told.append(number[0])
                stop.set()

    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    os.register_at_fork(after_in_child=_as_any_process)  # what an environment forks may be told to end by it
    with pythons:
        start_contained("signals", hear)
        woken = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)
    if told:
        raise typer.Exit(128 + told[0])


def _as_any_process() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class RoleCommand(TyperCommand):
    """The command of a role: a missing or impossible option is a configuration problem too, and exits with 78 instead of 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As the base class, with another exit code."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.exit_code = EXIT_CONFIGURATION
            raise


def worker(
    role: Annotated[Role, typer.Argument(help="Which role to run.", show_default=False)],
    job: Annotated[Path, typer.Option(envvar="RLJOB_JOB", help="The job's manifest, with overrides applied.")],
    run_dir: Annotated[
        Path, typer.Option(envvar="RLJOB_RUN_DIR", resolve_path=True, help="Folder for checkpoints, figures and logs.")
    ],
    name: Annotated[str, typer.Option(envvar="RLJOB_NAME", help="This process's name, such as actor-0.")],
    replay_ingest: Annotated[
        list[str] | None,
        typer.Option(
            envvar="RLJOB_REPLAY_INGEST",
            help="Where chunks are taken: by replay, once a shard, in order; by the learner where a job has no replay.",
        ),
    ] = None,
    replay_sample: Annotated[
        list[str] | None,
        typer.Option(envvar="RLJOB_REPLAY_SAMPLE", help="Where replay gives samples; once a shard, in order."),
    ] = None,
    weights: Annotated[str, typer.Option(envvar="RLJOB_WEIGHTS", help="Where the learner gives weights.")] = "",
    notice: Annotated[str, typer.Option(envvar="RLJOB_NOTICE", help="Where the learner announces new weights.")] = "",
    inference: Annotated[
        list[str] | None,
        typer.Option(
            envvar="RLJOB_INFERENCE",
            help="Where actions are computed (actors.inference: Central); for an actor once a server, in order.",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(
            envvar="RLJOB_METRICS_HOST",
            help="Address where /metrics, /status and /healthz listen; * lets other machines read them, over IPv4 and IPv6.",
        ),
    ] = "127.0.0.1",
    metrics_port: Annotated[
        int,
        typer.Option(
            envvar="RLJOB_METRICS_PORT", min=0, max=65535, help="Port of /metrics and /status; 0 takes a free one."
        ),
    ] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="RLJOB_TOKEN_FILE",
            resolve_path=True,
            help="File with the job's token. Requests to the metrics port that change something (POST /checkpoint) need it; "
            "without one they are taken on loopback only.",
        ),
    ] = None,
    announce: Annotated[
        Path | None,
        typer.Option(
            envvar="RLJOB_ANNOUNCE", resolve_path=True, help="File to write pid and metrics address to, once ready."
        ),
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(envvar="RLJOB_REDIS", help="Redis of a replay shard: a URL or the path of a unix socket."),
    ] = None,
    redis_keys: Annotated[
        str,
        typer.Option(
            envvar="RLJOB_REDIS_KEYS",
            help="What the keys of a replay shard begin with in a Redis that others use, too; the user and the password are "
            "RLJOB_REDIS_USERNAME and RLJOB_REDIS_PASSWORD, the authority's certificate RLJOB_REDIS_CA.",
        ),
    ] = "",
    redis_keep_seconds: Annotated[
        int,
        typer.Option(
            envvar="RLJOB_REDIS_KEEP_SECONDS",
            min=60,
            help="There keys expire that no shard has written or renewed for so long: those of a job that was suspended for "
            "longer, too.",
        ),
    ] = KEEP_SECONDS,
    resume: Annotated[
        str | None, typer.Option(envvar="RLJOB_RESUME", help='Checkpoint that the learner starts from, or "latest".')
    ] = None,
    epoch: Annotated[
        int,
        typer.Option(
            envvar="RLJOB_EPOCH",
            min=0,
            help="Lowest epoch of the learner; each restart gets a higher one. Of two learners of a job, the one with the "
            "later epoch counts, and the other ends with 75.",
        ),
    ] = 0,
    uid: Annotated[
        str,
        typer.Option(envvar="RLJOB_UID", help="Name of the learner's recording beside its checkpoints; none without."),
    ] = "",
    keys: Annotated[
        Path | None,
        typer.Option(envvar="RLJOB_KEYS", resolve_path=True, help="CURVE keys, for tcp:// beyond this machine."),
    ] = None,
    last_words: Annotated[
        Path | None,
        typer.Option(
            envvar="RLJOB_LAST_WORDS",
            resolve_path=True,
            help="File for what a learner leaves at an orderly end: how its newest checkpoint went, as JSON. In a pod the "
            "termination log.",
        ),
    ] = None,
    node: Annotated[
        str,
        typer.Option(
            envvar="RLJOB_NODE",
            help="An actor's node: the learner sends weights to one actor of a node, and the others take them from it.",
        ),
    ] = "",
    address: Annotated[
        str, typer.Option(envvar="RLJOB_ADDRESS", help="Where the other actors of the node reach this one.")
    ] = "",
    on_cluster: Annotated[
        bool,
        typer.Option(
            "--on-cluster",
            envvar="RLJOB_ON_CLUSTER",
            help="Set in the operator's pods: a learner uses a device only where the job asks for one, and ends where it is "
            "missing.",
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="RLJOB_DEBUG", help="Show tracebacks and debug messages.")
    ] = False,
    protocol: Annotated[
        int | None,
        typer.Option(
            envvar="RLJOB_PROTOCOL",
            help="Protocol that the job's roles speak; an image that speaks another one exits with 76.",
        ),
    ] = None,
) -> None:
    """Run one role of a job: what a pod runs, and what `rljob run` starts. Few people type this.

    SIGTERM or Ctrl-C drains: an actor sends what it holds, the learner writes a checkpoint, and the exit code is 143 or 130.
    Exit code 78 means a problem of configuration, which starting again will not mend; 76 an image of another protocol than
    the job's. Every option can come from RLJOB_<OPTION>.

    Example, one actor of a job whose other roles run elsewhere:

        rljob worker actor --job job.yaml --run-dir runs/pong --name actor-0 \\
          --replay-ingest ipc:///tmp/pong/ingest
        --weights ipc:///tmp/pong/weights --notice ipc:///tmp/pong/notice
    """
    Debug.enabled = Debug.enabled or debug
    prepare_process(logging.DEBUG if Debug.enabled else logging.INFO)
    stop = threading.Event()
    with (
        one_line_errors(configuration_exit=EXIT_CONFIGURATION),
        stopping_on_signals(stop),
    ):
        check_protocol(protocol)  # before anything of the job is read, which may be as new as its protocol
        require_data_plane(f"rljob worker {role}")
        enter()
        from rljob.algorithms.registry import with_own_parts

        options = RoleOptions(
            job=with_own_parts(load_manifest(job)),
            run_dir=run_dir,
            name=name,
            replay_ingest=tuple(replay_ingest or ()),
            replay_sample=tuple(replay_sample or ()),
            weights=weights,
            notice=notice,
            inference=tuple(inference or ()),
            metrics_host=metrics_host,
            metrics_port=metrics_port,
            token_file=token_file,
            announce=announce,
            redis=redis,
            redis_keys=redis_keys,
            redis_keep_seconds=redis_keep_seconds,
            resume=resume,
            epoch=epoch,
            keys=keys,
            last_words=last_words,
            node=node,
            address=address,
            uid=uid,
            on_cluster=on_cluster,
        )
        if on_cluster and options.job.spec.network.encryption == "None":
            from rljob.wire.security import permit_plain

            permit_plain()  # as the manifest says; elsewhere the network is not known to be trusted
        # What `ps aux` and `top -c` show, and what `ps -e` and `top` do; a fork would have the fork server's.
        setproctitle(f"rljob {options.job.metadata.name}: {name}")
        setthreadtitle(name)
        check_options(role, options)
        role_function(role)(options, stop)


def prepare_process(log_level: int) -> None:
    """Log to stderr, also where a user's module closes that, or gives the root logger other handlers or none, and the place of a
    crash in native code; open as many files as may be, for many copies of an environment have many pipes."""
    faulthandler.enable(2, all_threads=False)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115 (it is the log, to the end)
    logging.basicConfig(level=log_level, format=LOG_FORMAT, datefmt="%H:%M:%S", stream=stderr)
    ours = logging.getLogger("rljob")
    ours.setLevel(log_level)
    ours.propagate = False
    ours.handlers = list(logging.getLogger().handlers)


app = typer.Typer(pretty_exceptions_enable=False)
"""The roles alone, without the rest of the command line: ``python -m rljob.roles ROLE``."""
app.command(cls=RoleCommand)(worker)
