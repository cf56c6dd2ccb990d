"""Rules of ``spec.actors``, ``spec.inference`` and ``spec.autoscaling``: how many there are, and who decides."""

from __future__ import annotations

from rljob.api.autoscaling import AutoscalingSpec
from rljob.api.job import RLJobSpec
from rljob.api.rule import Outcome, rule


@rule(
    AutoscalingSpec,
    "minReplicas",
    cel="self.minReplicas <= self.maxReplicas",
    message="allowed: at most maxReplicas",
)
def min_below_max(scaling: AutoscalingSpec) -> Outcome:
    return (
        None
        if scaling.min_replicas <= scaling.max_replicas
        else f"allowed: at most maxReplicas ({scaling.max_replicas})"
    )


@rule(
    RLJobSpec,
    "actors.replicas",
    cel="has(self.autoscaling) && has(self.autoscaling.mode) && self.autoscaling.mode != 'Disabled' || "
    "self.actors.replicas >= 1",
    message="allowed: at least 1 without autoscaling; no actor would play and training never start",
)
def at_least_one_actor(spec: RLJobSpec) -> Outcome:
    if spec.autoscaling.mode != "Disabled" or spec.actors.replicas >= 1:
        return None
    return "allowed: at least 1 without autoscaling; no actor would play and training never start"


_NO_EQUILIBRIUM = (
    "allowed: External or Disabled while replay.rateLimiter.samplesPerInsert is 0; a learner that may draw without limit is "
    "never short of data, so no number of actors is the right one. Set samplesPerInsert"
)


@rule(
    RLJobSpec,
    "autoscaling.mode",
    parameters=("chunkLength",),
    also=("replay.rateLimiter.samplesPerInsert",),
    message=_NO_EQUILIBRIUM,
)
def an_equilibrium(spec: RLJobSpec) -> Outcome:
    if spec.autoscaling.mode != "Internal" or spec.replay is None or spec.replay.rate_limiter.samples_per_insert > 0:
        return None
    return _NO_EQUILIBRIUM


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


@rule(
    RLJobSpec,
    "inference.replicas",
    cel="has(self.actors.inference) && self.actors.inference == 'Central' || self.inference.replicas == 0",
    message="allowed: 0 with actors.inference: Local; no actor would ask these servers. Set actors.inference: Central",
)
def servers_that_are_asked(spec: RLJobSpec) -> Outcome:
    if spec.actors.inference == "Central" or spec.inference.replicas == 0:
        return None
    return "allowed: 0 with actors.inference: Local; no actor would ask these servers. Set actors.inference: Central"
