"""Whether an algorithm can be trained in an environment, and has a network for it. For those of this package it needs
torch only where actors.precision is INT8."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from rljob.algorithms.registry import algorithm, has_own_parts
from rljob.api.networks import TAKES, NetworkProblem, resolved_networks
from rljob.api.sac import SACParameters
from rljob.loading import short

if TYPE_CHECKING:
    from rljob.api import RLJob
    from rljob.envs.spec import EnvironmentSpec

NOT_IN_INT8 = (
    "actors.precision is INT8, but this network can't be computed in int8: that takes convolutions and dense layers one behind "
    "the other, of one picture or of vectors, as Nature, Compact, Small and MLP are (not Deep, nor with separateCritic, nor one "
    "of your own), and an x86 processor; Auto takes int8 where it can and helps"
)


def check_suits(job: RLJob, spec: EnvironmentSpec) -> None:
    """Raise NetworkProblem, in a sentence, where it can't, and PluginProblem where the user's own can't be loaded."""
    chosen, centred = job.spec.algorithm, job.spec.environment.centre_input
    own = chosen.type == "Custom"
    takes = algorithm(chosen.name).takes if own else TAKES[chosen.type]
    if (problem := spec.untaken(short(chosen.name), takes, centred=centred)) is not None:
        raise NetworkProblem(f"environment {short(spec.id)!r}: {problem}")
    if isinstance(chosen.parameters, SACParameters):
        _check_target_entropy(chosen.parameters.target_entropy, spec.controls)
    if not own:
        resolved_networks(chosen.type, chosen.parameters.network, spec.seen_shapes)
    if job.spec.actors.precision == "INT8" and not has_own_parts(job):  # whose network is built where it acts alone
        network = algorithm(chosen.name).build(spec, chosen.parameters, job.spec.environment.parameters)
        if not network.in_order:
            raise NetworkProblem(NOT_IN_INT8)


def _check_target_entropy(asked: float | None, controls: int) -> None:
    most = controls * log(2.0)
    if asked is not None and asked >= most:
        raise NetworkProblem(
            f"targetEntropy is {asked:g}, but an action of {controls} numbers from -1 to 1 has at most {most:.3g} nats, log 2 "
            f"for each, and the temperature would grow without end; unset it is {-controls}"
        )
