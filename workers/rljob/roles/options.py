"""The options that every role of a job is started with, as one value, so that a role runs the same from a pod, a process or a
test; and the file in which a started role announces itself."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rljob.api import RLJob
from rljob.files import replace
from rljob.strict_json import dumps

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


def announce(options: RoleOptions, role: str, metrics_url: str, incarnation: str) -> None:
    """Write ``options.announce`` (if given): ``{"role", "name", "pid", "metrics_url", "incarnation"}`` as JSON.

    The file appears whole or not at all. Call it once the telemetry server listens.
    """
    path = options.announce
    if path is None:
        return
    document = {
        "role": role,
        "name": options.name,
        "pid": os.getpid(),
        "metrics_url": metrics_url,
        "incarnation": incarnation,
    }
    _write(path, document)


def write_final(options: RoleOptions, document: dict[str, Any]) -> None:
    """Write the role's last status as ``roles/<name>.final.json`` of the run folder, on a clean exit."""
    _write(options.run_dir / "roles" / f"{options.name}.final.json", document)


def write_last_words(options: RoleOptions, document: dict[str, Any]) -> None:
    """Write ``options.last_words`` (if given) at the end of a process, which can't be asked any more then. What can't be
    written is only logged: the end is none the worse."""
    if options.last_words is None:
        return
    try:
        # In a pod the file is a mount, in whose place no other can be put.
        options.last_words.write_text(dumps(document) + "\n")
    except OSError as error:
        log.warning("%s: last words can't be written: %s", options.last_words, error.strerror)


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        replace(path, dumps(document) + "\n")
    except OSError as error:
        raise OSError(error.errno, f"{path} can't be written: {error.strerror}") from error
