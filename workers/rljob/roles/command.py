"""``rljob worker ROLE``: one role of a job as a process, the same in a pod and under the local supervisor."""

from __future__ import annotations

import enum
import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rljob.api import RLJob, load_manifest
from rljob.api.exit_codes import EXIT_CONFIGURATION, EXIT_PROTOCOL
from rljob.command_errors import Debug, one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import CommandRefused, UsageError
from rljob.roles.announce import recording_exit
from rljob.roles.options import RoleOptions
from rljob.wire import version as protocol_version
from setproctitle import setproctitle, setthreadtitle
from typer.core import TyperCommand

if TYPE_CHECKING:
    from collections.abc import Iterator


class Role(enum.StrEnum):
    """The roles of a job."""

    ACTOR = "actor"
    REPLAY = "replay"
    LEARNER = "learner"
    EVALUATOR = "evaluator"
    INFERENCE = "inference"


class Profiled(enum.StrEnum):
    """The roles whose loops can be profiled: those that compute with torch all the time."""

    ACTOR = "actor"
    LEARNER = "learner"


RoleFunction = Callable[[RoleOptions, threading.Event], None]

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


def role_function(role: Role) -> RoleFunction:
    """The function that runs a role until it is done or told to stop. Imports only what that role needs."""
    if role is Role.ACTOR:
        from rljob.roles.actor import run_actor

        return run_actor
    if role is Role.REPLAY:
        from rljob.roles.replay import run_replay

        return run_replay
    if role is Role.LEARNER:
        from rljob.roles.learner import run_learner

        return run_learner
    if role is Role.INFERENCE:
        from rljob.roles.inference import run_inference

        return run_inference
    from rljob.roles.evaluator import run_evaluator

    return run_evaluator


def _needs(role: Role, job: RLJob) -> tuple[str, ...]:
    """The addresses that a role cannot do without in this job. A learner without a replay service takes the actors' chunks
    itself; actors with central inference hold no weights, and where it has no servers of its own the learner serves."""
    spec = job.spec
    central = spec.actors.inference == "Central"
    serves = ("inference",) if central and spec.inference.replicas == 0 else ()
    return {
        Role.ACTOR: ("replay_ingest", "inference") if central else ("replay_ingest", "weights", "notice"),
        Role.REPLAY: ("replay_ingest", "replay_sample"),
        Role.LEARNER: ("replay_ingest" if spec.replay is None else "replay_sample", "weights", "notice", *serves),
        Role.EVALUATOR: ("weights", "notice"),
        Role.INFERENCE: ("inference", "weights", "notice"),
    }[role]


def check_options(role: Role, options: RoleOptions) -> None:
    """Refuse options that the role could not work with. Raises `UsageError`, naming every missing option."""
    replay = options.job.spec.replay
    if role is Role.REPLAY and replay is None:
        algorithm = options.job.spec.algorithm.name
        raise UsageError(f"replay: a job of {algorithm} has none; its learner keeps the queue of unrolls itself")
    needs = _needs(role, options.job)
    missing = [name for name in needs if not getattr(options, name)]
    if missing:
        names = ", ".join(f"--{name.replace('_', '-')} (RLJOB_{name.upper()})" for name in missing)
        raise UsageError(
            f"{role} needs {names}: the address of a peer, such as tcp://10.0.0.7:5555 or ipc:///run/replay.sock"
        )
    if role is Role.REPLAY and (len(options.replay_ingest), len(options.replay_sample)) != (1, 1):
        raise UsageError("replay binds exactly one --replay-ingest and one --replay-sample; start one process a shard")
    wanted, what = (replay.shards, "one for each of spec.replay.shards") if replay is not None else (1, "the learner's")
    for name in set(needs) & {"replay_ingest", "replay_sample"}:
        given = len(getattr(options, name))
        if role is not Role.REPLAY and given != wanted:
            raise UsageError(f"{role} got {given} --{name.replace('_', '-')}; allowed: {wanted}, {what}")
    servers = max(1, options.job.spec.inference.replicas) if role is Role.ACTOR else 1
    if "inference" in needs and len(options.inference) != servers:
        raise UsageError(
            f"{role} got {len(options.inference)} --inference; allowed: {servers}, "
            + ("one for each server of spec.inference.replicas" if role is Role.ACTOR else "the address that it binds")
        )
    if options.token_file is not None and not _has_text(options.token_file):
        raise UsageError(f"--token-file {options.token_file}: a readable file with the job's token in it is needed")
    if options.keys is not None and not options.keys.is_file():
        raise UsageError(f"--keys {options.keys}: no such file; `rljob keys FOLDER` writes one for each role")


def check_protocol(wanted: int | None) -> None:
    """Refuse to work in a job that speaks another protocol: its other roles would take none of our messages. Raises
    `CommandRefused`."""
    spoken = protocol_version.WIRE_VERSION
    if wanted is not None and wanted != spoken:
        words = f"this image is of release {version('rljob')} and speaks protocol {spoken}; the job speaks protocol {wanted}"
        raise CommandRefused(words, EXIT_PROTOCOL)


def _has_text(file: Path) -> bool:
    try:
        return bool(file.read_bytes().strip())
    except OSError:
        return False


@contextmanager
def stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set ``stop`` on SIGTERM and SIGINT; the handlers from before come back at the end."""
    log = logging.getLogger("rljob.worker")

    def handle(number: int, frame: object) -> None:
        log.info("%s: draining", signal.Signals(number).name)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    run_dir: Annotated[Path, typer.Option(envvar="RLJOB_RUN_DIR", help="Folder for checkpoints, figures and logs.")],
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
            help="Address where /metrics, /status and /healthz listen; 0.0.0.0 lets other machines read them.",
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
            help="File with the job's token. Requests to the metrics port that change something (POST /checkpoint) need it; "
            "without one they are taken on loopback only.",
        ),
    ] = None,
    announce: Annotated[
        Path | None, typer.Option(envvar="RLJOB_ANNOUNCE", help="File to write pid and metrics address to, once ready.")
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(envvar="RLJOB_REDIS", help="Redis of a replay shard: a URL or the path of a unix socket."),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(envvar="RLJOB_RESUME", help='Checkpoint that the learner starts from, or "latest".')
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(envvar="RLJOB_KEYS", help="CURVE keys, for tcp:// beyond this machine.")
    ] = None,
    profile: Annotated[
        list[Profiled] | None,
        typer.Option(
            envvar="RLJOB_PROFILE", help="Profile this process if that is its role; see `rljob run --profile`."
        ),
    ] = None,
    last_words: Annotated[
        Path | None,
        typer.Option(
            envvar="RLJOB_LAST_WORDS",
            help="File for what a learner leaves at an orderly end: how its newest checkpoint went, as JSON. In a pod the "
            "termination log.",
        ),
    ] = None,
    on_cluster: Annotated[
        bool,
        typer.Option(
            "--on-cluster",
            envvar="RLJOB_ON_CLUSTER",
            help="Set in the operator's pods: a learner uses a device only where the job asks for one, and ends where it is "
            "missing.",
        ),
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

    SIGTERM or Ctrl-C drains: an actor sends what it holds, the learner writes a checkpoint, and the exit code is 0.
    Exit code 78 means a problem of configuration, which starting again will not mend; 76 an image of another protocol than
    the job's. Every option can come from RLJOB_<OPTION>.

    Example, one actor of a job whose other roles run elsewhere:

        rljob worker actor --job job.yaml --run-dir runs/pong --name actor-0 --replay-ingest ipc:///tmp/pong/ingest
        --weights ipc:///tmp/pong/weights --notice ipc:///tmp/pong/notice
    """
    logging.basicConfig(
        level=logging.DEBUG if Debug.enabled else logging.INFO, format=LOG_FORMAT, datefmt="%H:%M:%S", stream=sys.stderr
    )
    stop = threading.Event()
    with (
        recording_exit(run_dir, name),
        one_line_errors(configuration_exit=EXIT_CONFIGURATION),
        stopping_on_signals(stop),
    ):
        check_protocol(protocol)  # before anything of the job is read, which may be as new as its protocol
        require_data_plane(f"rljob worker {role}")
        from rljob.algorithms.registry import with_own_parts

        options = RoleOptions(
            job=with_own_parts(load_manifest(job, on_cluster=False)),  # its controller has checked what a cluster needs
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
            resume=resume,
            keys=keys,
            profile=role in (profile or ()),
            last_words=last_words,
            on_cluster=on_cluster,
        )
        if on_cluster and options.job.spec.network.encryption == "None":
            from rljob.wire.security import permit_plain

            permit_plain()  # as the manifest says; elsewhere nobody has said that the network can be trusted
        # What `ps aux` and `top -c` show, and what `ps -e` and `top` do; a fork would have the fork server's.
        setproctitle(f"rljob {options.job.metadata.name}: {name}")
        setthreadtitle(name)
        check_options(role, options)
        role_function(role)(options, stop)


app = typer.Typer(pretty_exceptions_enable=False)
"""The roles alone, without the rest of the command line: ``python -m rljob.roles ROLE``."""
app.command(cls=RoleCommand)(worker)
