"""Rules of ``spec.actors``, ``spec.inference`` and ``spec.autoscaling``: how many there are, and who decides."""

from rljob.api.autoscaling import AutoscalingSpec
from rljob.api.job import RLJobSpec
from rljob.api.rule import Outcome, at_most, holds, rule

_RULES = (
    at_most(
        "min_below_max",
        AutoscalingSpec,
        "minReplicas",
        "maxReplicas",
        "the autoscaler asks for no fewer than the one and no more than the other",
        cel="self.minReplicas <= self.maxReplicas",
    ),
    holds(
        "at_least_one_actor",
        RLJobSpec,
        "actors.replicas",
        lambda spec: spec.autoscaling.mode != "Disabled" or spec.actors.replicas >= 1,
        cel="has(self.autoscaling) && has(self.autoscaling.mode) && self.autoscaling.mode != 'Disabled' || "
        "self.actors.replicas >= 1",
        message="allowed: at least 1 without autoscaling; no actor would play, and training would never start",
    ),
    holds(
        "an_equilibrium",
        RLJobSpec,
        "autoscaling.mode",
        lambda spec: (
            spec.autoscaling.mode != "Internal"
            or spec.replay is None
            or spec.replay.rate_limiter.samples_per_insert > 0
        ),
        parameters=("chunkLength",),
        also=("replay.rateLimiter.samplesPerInsert",),
        message="allowed: External or Disabled while replay.rateLimiter.samplesPerInsert is 0; a learner that draws without "
        "limit never lacks data, so no number of actors is right. Set samplesPerInsert",
    ),
    holds(
        "servers_that_are_asked",
        RLJobSpec,
        "inference.replicas",
        lambda spec: spec.actors.inference == "Central" or spec.inference.replicas == 0,
        cel="has(self.actors.inference) && self.actors.inference == 'Central' || self.inference.replicas == 0",
        message="allowed: 0 with actors.inference: Local; no actor would use these servers. Set actors.inference: Central",
    ),
)


@rule(
    RLJobSpec,
    "inference.maxBatchSize",
    also=("actors.inference", "actors.envsPerActor"),
    message="allowed: at least actors.envsPerActor with actors.inference: Central; the batch has no room for the observations "
    "of one actor",
)
def room_for_one_actor(spec: RLJobSpec) -> Outcome:
    if spec.actors.inference != "Central" or spec.inference.max_batch_size >= spec.actors.envs_per_actor:
        return None
    return (
        f"allowed: at least actors.envsPerActor ({spec.actors.envs_per_actor}) with actors.inference: Central; the batch has "
        "no room for the observations of one actor"
    )
