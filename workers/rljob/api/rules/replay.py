"""Rules of ``spec.replay``: sizes that would never let training start, and a limiter that would stop both sides."""

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.job import RLJobSpec
from rljob.api.rule import Outcome, at_most, rule
from rljob.api.rules.algorithm import TYPE
from rljob.api.types import plain_number

_STORING_NOTHING = [name for name, each in BUILT_IN.items() if not each.from_replay]


@rule(
    RLJobSpec,
    "replay",
    reason="FieldValueForbidden",
    cel=f"!has(self.replay) || !({TYPE} in {_STORING_NOTHING})",
    message=f"not allowed with {' and '.join(_STORING_NOTHING)}, which learn from fresh unrolls and store none; remove it",
)
def no_replay(spec: RLJobSpec) -> Outcome:
    if spec.replay is None or spec.algorithm.type not in _STORING_NOTHING:
        return None
    return f"not allowed with algorithm {spec.algorithm.type}: it learns from fresh unrolls and stores none; remove it"


min_size_within_capacity = at_most(
    "min_size_within_capacity",
    RLJobSpec,
    "replay.rateLimiter.minSize",
    "replay.capacity",
    "a full store would still be below it and training never start",
    parameters=("chunkLength",),
    also=("replay.capacity",),
)


@rule(
    RLJobSpec,
    "replay.rateLimiter.minSize",
    parameters=("batchSize", "chunkLength"),
    message="allowed: at least the algorithm's batchSize; else a batch would be drawn from fewer transitions than it holds",
)
def min_size_of_a_batch(spec: RLJobSpec) -> Outcome:
    parameters = spec.algorithm.parameters
    if spec.replay is None or spec.replay.rate_limiter.min_size >= parameters.batch_size:
        return None
    return (
        f"allowed: at least batchSize ({parameters.batch_size:,}), or a batch would be drawn from fewer transitions than it "
        "holds"
    )


@rule(
    RLJobSpec,
    "replay.capacity",
    parameters=("chunkLength",),
    also=("actors.replicas", "actors.envsPerActor"),
    message="allowed: at least actors.replicas * actors.envsPerActor * chunkLength, one chunk for each environment; below "
    "that, an actor's chunk would overwrite another's before it is drawn",
)
def room_for_every_environment(spec: RLJobSpec) -> Outcome:
    parameters = spec.algorithm.parameters
    actors = spec.actors
    environments = actors.replicas * actors.envs_per_actor
    needed = environments * parameters.chunk_length
    if spec.replay is None or spec.replay.capacity >= needed:
        return None
    return (
        f"allowed: at least {needed:,}, one chunk of {parameters.chunk_length} steps for each of {environments:,} "
        f"environments (replicas {actors.replicas:,} * envsPerActor {actors.envs_per_actor:,}); below it an actor's chunk "
        "would push out another's before it is ever drawn"
    )


@rule(
    RLJobSpec,
    "replay.shards",
    parameters=("chunkLength",),
    also=("replay.capacity",),
    message="allowed: few enough that each shard's part of replay.capacity holds a chunk of chunkLength transitions",
)
def a_chunk_in_every_shard(spec: RLJobSpec) -> Outcome:
    replay, chunk = spec.replay, spec.algorithm.parameters.chunk_length
    if replay is None or replay.shards == 1 or replay.capacity // replay.shards >= chunk:
        return None
    return (
        f"allowed: at most {max(1, replay.capacity // chunk):,}; capacity {replay.capacity:,} leaves a shard "
        f"{replay.capacity // replay.shards:,} transitions, less than one chunk of {chunk}"
    )


@rule(
    RLJobSpec,
    "replay.rateLimiter.errorBuffer",
    parameters=("batchSize", "chunkLength"),
    also=("replay.shards", "replay.rateLimiter.samplesPerInsert"),
    message="allowed: at least shards * max(2 * max(1, samplesPerInsert) * chunkLength, batchSize) samples; in a narrower "
    "band actors and learner would wait for each other forever. The default follows minSize",
)
def no_mutual_wait(spec: RLJobSpec) -> Outcome:
    """Insertion adds ratio * chunk samples to the credit, a batch takes its size; both are blocked for good when the band of
    2 * errorBuffer is narrower than the two together. Twice the chunk's share (the bound Reverb uses) always leaves room."""
    if spec.replay is None:
        return None
    replay, parameters = spec.replay.resolved(), spec.algorithm.parameters
    ratio, chunk, batch = replay.samples_per_insert, parameters.chunk_length, parameters.batch_size
    needed = replay.shards * max(2 * max(1.0, ratio) * chunk, float(batch))
    if ratio == 0 or replay.error_buffer >= needed:
        return None
    shards = f"{replay.shards} shards * " if replay.shards > 1 else ""
    message = (
        f"allowed: at least {plain_number(needed)} samples = {shards}max(2 * max(1, samplesPerInsert {ratio:g}) * "
        f"chunkLength {chunk}, batchSize {batch}); in a narrower band the next chunk may not be inserted and the next batch "
        "not be drawn, and actors and learner would wait for each other for ever"
    )
    return message
