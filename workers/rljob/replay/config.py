"""What a replay service is built from."""

from dataclasses import dataclass

from rljob.api import RLJob, credits_per_actor
from rljob.api.parameters import TransitionParameterSet
from rljob.api.replay import ReplayParameters
from rljob.envs.spec import EnvironmentSpec
from rljob.experience import ActionSpace, SegmentLayout, transition_layout
from rljob.replay.limiter import LimiterConfig
from rljob.replay.redis_client import Login
from rljob.replay.table import Capacity
from rljob.wire import ServerSecurity


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """One shard. Sizes are this shard's own, not the job's; raises ``ValueError`` when they contradict each other."""

    run: str
    layout: SegmentLayout
    capacity: Capacity
    limiter: LimiterConfig
    ingest: str
    """Endpoint to bind for actors."""
    sample: str
    """Endpoint to bind for the learner."""
    shard: int = 0
    exponent: float = 0.6
    """Whether batches carry frames; otherwise the learner mirrors the chunks and is sent slot ids."""
    slots: int = 1
    """Epsilon slots."""
    credits: int = 4
    """Chunks one actor may have on the way."""
    in_turns: bool = False
    """Whether actors wait for the learner, as it does for them (``InTurns``)."""
    redis: str | None = None
    """Address of the shard's Redis; None keeps everything in memory only."""
    redis_login: Login = Login()  # noqa: RUF009 - it is frozen
    redis_keep_seconds: int = 0
    """After how long without a shard that renews it the log expires; 0: never."""
    seed: int = 0
    snapshot_seconds: float = 30.0
    actor_timeout_seconds: float = 15.0
    security: ServerSecurity | None = None

    def __post_init__(self) -> None:
        if self.capacity.steps < self.limiter.min_size + self.layout.length:
            raise ValueError(
                f"replay capacity is {self.capacity.steps} transitions a shard, less than minSize "
                f"{self.limiter.min_size} and one chunk of {self.layout.length}: sampling would never start"
            )


def capacity_of(replay: ReplayParameters) -> Capacity:
    """What each shard of a job holds."""
    return Capacity(-(-replay.capacity // replay.shards), replay.capacity_bytes // replay.shards)


def config_of(
    job: RLJob,
    *,
    shard: int,
    ingest: str,
    sample: str,
    redis: str | None,
    redis_keys: str = "",
    redis_login: Login = Login(),  # noqa: B008 - it is frozen
    redis_keep_seconds: int = 0,
    environment: EnvironmentSpec,
    security: ServerSecurity | None = None,
) -> ReplayConfig:
    """This shard's part of a job.

    Raises ``ValueError`` (see ``ReplayConfig`` and ``LimiterConfig``).
    """
    algorithm, replay = job.spec.algorithm.parameters, job.spec.required_replay.resolved()
    if not isinstance(algorithm, TransitionParameterSet):
        raise ValueError(
            f"the algorithm {job.spec.algorithm.name} learns from no transitions: it needs no replay service"
        )
    layout = transition_layout(
        algorithm.chunk_length,
        environment.columns,
        algorithm.n_step,
        ActionSpace(environment.action_sizes, environment.controls),
        environment.lines,
    )
    shards, envs, in_turns = replay.shards, job.spec.actors.envs_per_actor, not algorithm.prefetch_batches
    return ReplayConfig(
        run=redis_keys or job.metadata.name,
        layout=layout,
        capacity=capacity_of(replay),
        limiter=LimiterConfig(
            samples_per_insert=replay.samples_per_insert,
            min_size=max(1, replay.min_size // shards),
            error_buffer=replay.error_buffer / shards,
            insert_step=layout.length,
            sample_step=algorithm.batch_size,  # batches are drawn whole from one shard after the other
        ),
        ingest=ingest,
        sample=sample,
        shard=shard,
        exponent=replay.exponent,
        slots=max(1, job.spec.requested_actors),
        credits=envs if in_turns else credits_per_actor(envs),
        in_turns=in_turns,
        redis=redis,
        redis_login=redis_login,
        redis_keep_seconds=redis_keep_seconds,
        seed=job.spec.seed * 1_000 + shard,
        security=security,
    )
