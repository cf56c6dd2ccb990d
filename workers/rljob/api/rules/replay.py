"""Rules of ``spec.replay``: sizes that would never let training start, and a limiter that would stop both sides."""

from __future__ import annotations

from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.job import RLJobSpec
from rljob.api.rule import Broken, Outcome, rule
from rljob.api.types import decimal_text


@rule(
    RLJobSpec,
    "replay",
    algorithm="ApeXDQN",
    reason="FieldValueRequired",
    cel="has(self.replay)",
    message="required with algorithm ApeXDQN; replay: {} takes its defaults",
)
def replay_required(spec: RLJobSpec, parameters: ApeXDQNParameters) -> Outcome:
    return "required with algorithm ApeXDQN; replay: {} takes its defaults" if spec.replay is None else None


@rule(
    RLJobSpec,
    "queue",
    algorithm="ApeXDQN",
    reason="FieldValueForbidden",
    cel="!has(self.queue)",
    message="not allowed with algorithm ApeXDQN: it draws from a store of experience; remove it, and describe the store in "
    "spec.replay",
)
def no_queue(spec: RLJobSpec, parameters: ApeXDQNParameters) -> Outcome:
    if spec.queue is None:
        return None
    return (
        "not allowed with algorithm ApeXDQN: it draws from a store of experience; remove it, and describe the store in "
        "spec.replay"
    )


@rule(
    RLJobSpec,
    "replay.rateLimiter.minSize",
    algorithm="ApeXDQN",
    cel="!has(self.replay) || self.replay.rateLimiter.minSize <= self.replay.capacity",
    message="allowed: at most replay.capacity; a full store would still be below it and training never start",
)
def min_size_within_capacity(spec: RLJobSpec, parameters: ApeXDQNParameters) -> Outcome:
    replay = spec.replay
    if replay is None or replay.rate_limiter.min_size <= replay.capacity:
        return None
    return (
        f"allowed: at most replay.capacity ({replay.capacity:,}); a full store would still be below it and training "
        "never start"
    )


@rule(
    RLJobSpec,
    "replay.rateLimiter.minSize",
    algorithm="ApeXDQN",
    cel="!has(self.replay) || self.replay.rateLimiter.minSize >= $batchSize",
    message="allowed: at least the algorithm's batchSize, or a batch would be drawn from fewer transitions than it holds",
)
def min_size_of_a_batch(spec: RLJobSpec, parameters: ApeXDQNParameters) -> Outcome:
    if spec.replay is None or spec.replay.rate_limiter.min_size >= parameters.batch_size:
        return None
    return (
        f"allowed: at least batchSize ({parameters.batch_size:,}), or a batch would be drawn from fewer transitions than it "
        "holds"
    )


@rule(
    RLJobSpec,
    "replay.capacity",
    algorithm="ApeXDQN",
    cel="!has(self.replay) || self.replay.capacity >= self.actors.replicas * self.actors.envsPerActor * $chunkLength",
    message="allowed: at least actors.replicas * actors.envsPerActor * chunkLength, one chunk for each environment; below it "
    "an actor's chunk would push out another's before it is ever drawn",
)
def room_for_every_environment(spec: RLJobSpec, parameters: ApeXDQNParameters) -> Outcome:
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
    algorithm="ApeXDQN",
    cel="!has(self.replay) || self.replay.shards == 1 || self.replay.capacity / self.replay.shards >= $chunkLength",
    message="allowed: so few that a shard's part of replay.capacity holds a chunk of chunkLength transitions",
)
def a_chunk_in_every_shard(spec: RLJobSpec, parameters: ApeXDQNParameters) -> Outcome:
    replay, chunk = spec.replay, parameters.chunk_length
    if replay is None or replay.shards == 1 or replay.capacity // replay.shards >= chunk:
        return None
    return (
        f"allowed: at most {max(1, replay.capacity // chunk):,}; capacity {replay.capacity:,} leaves a shard "
        f"{replay.capacity // replay.shards:,} transitions, less than one chunk of {chunk}"
    )


@rule(
    RLJobSpec,
    "replay.rateLimiter.errorBuffer",
    algorithm="ApeXDQN",
    # With R = samplesPerInsert, S = shards, C = chunkLength, B = batchSize: the buffer, or its default
    # max(1, R) * max(minSize / 10, 200 * S), is at least S * max(2 * max(1, R) * C, B). CEL has no max().
    cel="!has(self.replay) || double(self.replay.rateLimiter.samplesPerInsert) == 0.0 || "
    "(has(self.replay.rateLimiter.errorBuffer) ? "
    "double(self.replay.rateLimiter.errorBuffer) >= double(self.replay.shards * 2 * $chunkLength) && "
    "double(self.replay.rateLimiter.errorBuffer) >= "
    "double(self.replay.shards * 2 * $chunkLength) * double(self.replay.rateLimiter.samplesPerInsert) && "
    "double(self.replay.rateLimiter.errorBuffer) >= double(self.replay.shards * $batchSize) : "
    "(self.replay.rateLimiter.minSize >= 20 * self.replay.shards * $chunkLength || $chunkLength <= 100) && "
    "(self.replay.rateLimiter.minSize >= 10 * self.replay.shards * $batchSize || $batchSize <= 200 || "
    "double(self.replay.rateLimiter.samplesPerInsert) * double(self.replay.rateLimiter.minSize) >= "
    "double(10 * self.replay.shards * $batchSize) || "
    "double(self.replay.rateLimiter.samplesPerInsert) * 200.0 >= double($batchSize)))",
    message="allowed: at least shards * max(2 * max(1, samplesPerInsert) * chunkLength, batchSize) samples; in a narrower "
    "band actors and learner would wait for each other for ever. The default comes from minSize",
)
def no_mutual_wait(spec: RLJobSpec, parameters: ApeXDQNParameters) -> Outcome:
    """Insertion adds ratio * chunk samples to the credit, a batch takes its size; both are blocked for good when the band of
    2 * errorBuffer is narrower than the two together. Twice the chunk's share (the bound Reverb uses) always leaves room."""
    if spec.replay is None:
        return None
    replay = spec.replay.resolved()
    ratio, chunk, batch = replay.samples_per_insert, parameters.chunk_length, parameters.batch_size
    needed = replay.shards * max(2 * max(1.0, ratio) * chunk, float(batch))
    if ratio == 0 or replay.error_buffer >= needed:
        return None
    default = "" if spec.replay.rate_limiter.error_buffer is not None else " (the default, from minSize)"
    shards = f"{replay.shards} shards * " if replay.shards > 1 else ""
    message = (
        f"allowed: at least {decimal_text(needed)} samples{default} = {shards}max(2 * max(1, samplesPerInsert {ratio:g}) * "
        f"chunkLength {chunk}, batchSize {batch}); in a narrower band the next chunk may not be inserted and the next batch "
        "not be drawn, and actors and learner would wait for each other for ever"
    )
    return Broken(message, decimal_text(replay.error_buffer))
