"""What every role of a job is started with, as one value, so that a role runs the same from a pod, a process or a test."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rljob.api import RLJob

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
    ``epoch``: the least that a learner takes, so that it is later than any before it, wherever those kept their checkpoints.
    ``last_words``: file for what a learner leaves behind at an orderly end.
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
    on_cluster: bool = False
