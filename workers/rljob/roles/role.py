"""The function that runs each role of a job, and the checks before it does."""

import threading
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from rljob.api import RLJob
from rljob.api.exit_codes import EXIT_PROTOCOL
from rljob.api.roles import Role
from rljob.errors import CommandRefused, UsageError
from rljob.roles.options import RoleOptions
from rljob.wire import version as protocol_version

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
