"""The replay role: an embedded Redis (unless one is given), the service, and its telemetry, for one shard."""

import contextlib
import logging
import os
import threading
import uuid
from typing import Any

from rljob.api import RLJob
from rljob.api.exit_codes import EXIT_NOT_SAVED
from rljob.api.replay import ExternalRedis
from rljob.envs import environment_of
from rljob.replay.config import config_of
from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.redis_client import Login
from rljob.replay.service import ReplayService
from rljob.roles.options import RoleOptions, serve, write_final
from rljob.wire import load_keys

log = logging.getLogger(__name__)


def run_replay(options: RoleOptions, stop: threading.Event) -> None:
    """Serve one shard until ``stop`` is set.

    ``options.redis``: None takes the job's ``redis.external``, or starts a private server in ``run_dir/redis/<name>`` (unless the
    job's persistence is None); "none" keeps no log; anything else is the address of a server to use. Where checkpoint.include
    leaves the replay out, there is no log in any case. The shard's index is the number at the end of its name.

    Raises ``ValueError`` for a job whose numbers contradict each other, ``RedisUnavailable``, what binding a socket raises, and
    ``SystemExit(74)`` where at the end not all that the shard holds could be saved.
    """
    job = options.job
    if len(options.replay_ingest) != 1 or len(options.replay_sample) != 1:
        raise ValueError("a replay role takes one --replay-ingest and one --replay-sample endpoint: its own")
    spec = environment_of(options.run_dir, job.spec.environment)
    with contextlib.ExitStack() as stack:
        server = _embedded_redis(options, stack)
        external = _external(job)
        config = config_of(
            job,
            shard=shard_of(options.name),
            ingest=options.replay_ingest[0],
            sample=options.replay_sample[0],
            redis=str(server.socket) if server is not None else _given_redis(options),
            redis_keys=_keys(options) if external is not None else "",
            # A private server knows no users: variables that are meant for another one are not for it.
            redis_login=Login.of(os.environ) if server is None else Login(),
            redis_keep_seconds=options.redis_keep_seconds if external is not None else 0,
            environment=spec,
            security=load_keys(options.keys, "replay").server() if options.keys is not None else None,
        )
        service = ReplayService(config)

        def status() -> dict[str, Any]:
            return {"role": "replay", "name": options.name, **service.status.to_document()}

        telemetry = stack.enter_context(
            serve(options, "replay", status, lambda: service.state != "warming", service.service)
        )
        log.info("replay: %s, %d transitions, ingest %s", options.name, config.capacity.steps, service.ingest_endpoint)

        def on_turn() -> None:
            telemetry.beat()
            if server is not None:
                server.revive()

        service.on_turn = on_turn
        service.run(stop)
        unsaved = service.unsaved
        if server is not None:
            unsaved = "; ".join(filter(None, (unsaved, server.stop())))
        _finish(
            options,
            {**service.status.to_document(), "durable": service.status.durable and not unsaved, "unsaved": unsaved},
        )


def _finish(options: RoleOptions, document: dict[str, Any]) -> None:
    """Write the last status, and tell by the exit code where a later start will miss experience. Raises SystemExit."""
    try:
        write_final(options, document)
    except OSError as error:  # the very disk that took no data, perhaps
        log.warning("%s", error)
    if document["unsaved"]:
        log.error("replay: what this shard holds is not all saved: %s", document["unsaved"])
        raise SystemExit(EXIT_NOT_SAVED)


def shard_of(name: str) -> int:
    """``replay-3`` -> 3; a name without a number is shard 0."""
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _external(job: RLJob) -> ExternalRedis | None:
    """The Redis of the user's own that the job keeps its experience in."""
    return job.spec.required_replay.redis.external


def _given_redis(options: RoleOptions) -> str | None:
    external = _external(options.job)
    given = options.redis or (external.url if external is not None else None)
    return None if given in (None, "none") or not _kept(options) else given


def _keys(options: RoleOptions) -> str:
    """What the names of the shard's keys begin with in a Redis that others use: no other shard has it, and no run that had this
    one's name before. Who starts a shard elsewhere each time says it; else it is kept in the run folder."""
    if options.redis_keys:
        return options.redis_keys
    file = options.run_dir / "redis" / f"{options.name}.keys"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{options.job.metadata.name}/{uuid.uuid4().hex}/{options.name}\n")
    return file.read_text().strip()


def _kept(options: RoleOptions) -> bool:
    """Whether the experience is part of what this job keeps."""
    return "Replay" in options.job.spec.checkpoint.include


def _embedded_redis(options: RoleOptions, stack: contextlib.ExitStack) -> EmbeddedRedis | None:
    """A started server of this role's own, unless another one or none is to be used."""
    persistence = options.job.spec.required_replay.resolved().persistence
    if options.redis is not None or _external(options.job) is not None or persistence == "None" or not _kept(options):
        return None
    return stack.enter_context(EmbeddedRedis(options.run_dir / "redis" / options.name, persistence))
