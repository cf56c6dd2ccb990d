"""The options that every role of a job is started with, as one value, so that a role runs the same from a pod, a process or a
test; the checks of them and the function that runs each role; and how a started role announces itself."""

import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.exit_codes import EXIT_PROTOCOL
from rljob.api.roles import Role
from rljob.errors import CommandRefused, UsageError
from rljob.files import replace
from rljob.strict_json import dumps
from rljob.telemetry.metrics import role_registry
from rljob.telemetry.server import TelemetryServer
from rljob.wire import version as protocol_version

log = logging.getLogger(__name__)

KEEP_SECONDS: Final = 14 * 24 * 3600


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """The surroundings of one role: the job, where its files go, and the addresses of its peers.

    ``replay_ingest`` and ``replay_sample`` hold one endpoint a shard, in shard order; a replay role gets exactly its
    own pair. In a job without replay, ``replay_ingest`` is the one endpoint that the learner binds for its queue.
    ``weights`` and ``notice`` are bound by the learner and connected to by actors and the evaluator.
    ``inference`` holds one endpoint an inference server, for a job with central inference; the learner that serves, and an
    inference role, get exactly their own.
    ``metrics_host`` and ``metrics_port``: where telemetry listens; port 0 takes any free one, and ``announce`` then tells which.
    ``token_file`` holds the job's token, which requests over that port need.
    ``redis_keys``: what a replay shard's keys begin with in a Redis that others use, too; ``redis_keep_seconds``: after how long
    without a shard they expire there.
    ``node`` and ``address``: an actor's node, and where others of it reach this actor, which then passes weights on to them.
    ``epoch``: the least that a learner takes, so that it is later than any before it, wherever those kept their checkpoints.
    ``last_words``: file for what a learner leaves behind at an orderly end.
    ``uid``: of the job's object on a cluster, under which the learner keeps its recording beside its checkpoints.
    ``on_cluster``: it is a pod that the operator made, so what it may use was reserved for it, and what is missing was promised.
    """

    job: RLJob
    run_dir: Path
    name: str
    replay_ingest: tuple[str, ...] = ()
    replay_sample: tuple[str, ...] = ()
    weights: str = ""
    notice: str = ""
    inference: tuple[str, ...] = ()
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    token_file: Path | None = None
    announce: Path | None = None
    redis: str | None = None
    redis_keys: str = ""
    redis_keep_seconds: int = KEEP_SECONDS
    resume: str | None = None
    epoch: int = 0
    keys: Path | None = None
    last_words: Path | None = None
    node: str = ""
    address: str = ""
    uid: str = ""
    on_cluster: bool = False


def serve(
    options: RoleOptions,
    role: str,
    status: Callable[[], Mapping[str, Any]],
    ready: Callable[[], bool],
    incarnation: str = "",
    requests: Mapping[str, Callable[[Mapping[str, Any]], None]] | None = None,
) -> TelemetryServer:
    """The telemetry server of a role. Once it listens, ``options.announce`` (if given) is written:
    ``{"role", "name", "pid", "metrics_url", "incarnation"}`` as JSON, whole or not at all."""
    server = TelemetryServer(
        role,
        options.metrics_port,
        status,
        ready,
        role_registry(role, status),
        requests=requests,
        host=options.metrics_host,
        token_file=options.token_file,
    )
    if options.announce is not None:
        document = {"role": role, "name": options.name, "pid": os.getpid(), "metrics_url": server.url}
        _write(options.announce, {**document, "incarnation": incarnation or uuid.uuid4().hex})
    return server


def write_final(options: RoleOptions, document: dict[str, Any]) -> None:
    """Write the role's last status as ``roles/<name>.final.json`` of the run folder, on a clean exit."""
    _write(options.run_dir / "roles" / f"{options.name}.final.json", document)


def write_last_words(options: RoleOptions, document: dict[str, Any]) -> None:
    """Write ``options.last_words`` (if given) at the end of a process, which can't be asked any more then. What can't be
    written is only logged: the end is none the worse."""
    try:
        if options.last_words is not None:  # in a pod the file is a mount, in whose place no other can be put
            options.last_words.write_text(dumps(document) + "\n")
    except OSError as error:
        log.warning("%s: last words can't be written: %s", options.last_words, error.strerror)


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        replace(path, dumps(document) + "\n")
    except OSError as error:
        raise OSError(error.errno, f"{path} can't be written: {error.strerror}") from error


RoleFunction = Callable[[RoleOptions, threading.Event], None]


def role_function(role: Role) -> RoleFunction:
    """The function that runs a role until it is done or told to stop. Imports only what that role needs."""
    run: RoleFunction = getattr(import_module(f"rljob.roles.{role}"), f"run_{role}")
    return run


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
    wanted, what = options.job.spec.learner.processes, "one for each of the learner's processes"
    if replay is not None:
        wanted, what = replay.shards, "one for each of spec.replay.shards"
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
