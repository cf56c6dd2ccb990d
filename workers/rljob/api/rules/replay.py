"""Rules of ``spec.replay``: sizes that would never let training start, and a limiter that would stop both sides."""

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.job import RLJobSpec
from rljob.api.rule import Rule, at_least, at_most
from rljob.api.rules.algorithm import TYPE

_STORING_NOTHING = [name for name, each in BUILT_IN.items() if not each.from_replay]


def _widest_step(spec: RLJobSpec) -> float:
    """Insertion adds ratio * chunk samples to the credit, a batch takes its size; both are blocked for good when the band of
    2 * errorBuffer is narrower than the two together. Twice the chunk's share (the bound Reverb uses) always leaves room."""
    replay, parameters = spec.required_replay, spec.algorithm.parameters
    ratio = replay.rate_limiter.samples_per_insert
    widest = replay.shards * max(2 * max(1.0, ratio) * parameters.chunk_length, parameters.batch_size)
    return widest if ratio else 0


_RULES = (
    Rule(
        "no_replay",
        RLJobSpec,
        "replay",
        lambda spec: spec.replay is None or spec.algorithm.type not in _STORING_NOTHING,
        reason="FieldValueForbidden",
        cel=f"!has(self.replay) || !({TYPE} in {_STORING_NOTHING})",
        message=f"not allowed with {' and '.join(_STORING_NOTHING)}, which learn from fresh unrolls and store none; remove it",
    ),
    at_most(
        "min_size_within_capacity",
        RLJobSpec,
        "replay.rateLimiter.minSize",
        "replay.capacity",
        "a full store would still be below it and training never start",
        parameters=("chunkLength",),
    ),
    at_least(
        "min_size_of_a_batch",
        RLJobSpec,
        "replay.rateLimiter.minSize",
        "the algorithm's batchSize",
        "else a batch would be drawn from fewer transitions than it holds",
        lambda spec: spec.algorithm.parameters.batch_size,
        parameters=("batchSize", "chunkLength"),
    ),
    at_least(
        "room_for_every_environment",
        RLJobSpec,
        "replay.capacity",
        "actors.replicas * actors.envsPerActor * chunkLength, one chunk for each environment",
        "below that, an actor's chunk would overwrite another's before it is drawn",
        lambda spec: spec.actors.replicas * spec.actors.envs_per_actor * spec.algorithm.parameters.chunk_length,
        parameters=("chunkLength",),
    ),
    Rule(
        "a_chunk_in_every_shard",
        RLJobSpec,
        "replay.shards",
        lambda spec: (
            spec.replay is None
            or spec.replay.shards == 1
            or spec.replay.capacity // spec.replay.shards >= spec.algorithm.parameters.chunk_length
        ),
        "allowed: few enough that each shard's part of replay.capacity holds a chunk of chunkLength transitions",
        lambda spec: f"at most {max(1, spec.replay.capacity // spec.algorithm.parameters.chunk_length):,}",
        parameters=("chunkLength",),
    ),
    at_least(
        "no_mutual_wait",
        RLJobSpec,
        "replay.rateLimiter.errorBuffer",
        "shards * max(2 * max(1, samplesPerInsert) * chunkLength, batchSize) samples",
        "in a narrower band actors and learner would wait for each other forever. The default follows minSize",
        _widest_step,
        parameters=("batchSize", "chunkLength"),
    ),
)
