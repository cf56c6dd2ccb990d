"""Whether an algorithm can be trained in an environment, and has a network for it. For those of this package it needs
torch only where actors.precision is INT8."""

from rljob.algorithms.built_in import BUILT_IN
from rljob.algorithms.registry import algorithm
from rljob.api import RLJob
from rljob.api.networks import NetworkProblem, resolved_network
from rljob.envs.spec import EnvironmentSpec
from rljob.loading import short

NOT_IN_INT8 = (
    "actors.precision is INT8, but this network can't be computed in int8: that takes convolutions and dense layers one behind "
    "the other, of one picture or of vectors, as Nature, Compact, Small and MLP are (not Deep, nor one of your own, nor "
    "with a separate critic, which PPO has for vectors unless separateCritic is false), and an x86 processor; Auto takes int8 "
    "where it can and helps"
)


def check_suits(job: RLJob, spec: EnvironmentSpec) -> None:
    """Raise NetworkProblem, in a sentence, where it can't, and PluginProblem where the user's own can't be loaded."""
    chosen, parameters = job.spec.algorithm, job.spec.algorithm.parameters
    declared = BUILT_IN.get(chosen.type)
    takes = algorithm(chosen.name).takes if declared is None else declared.takes
    if (problem := spec.untaken(short(chosen.name), takes, centred=job.spec.environment.centre_input)) is not None:
        raise NetworkProblem(f"environment {short(spec.id)!r}: {problem}")
    if problem := parameters.unsuited(spec):
        raise NetworkProblem(problem)
    for shape in spec.seen_shapes if declared is not None and declared.networks else ():
        resolved_network(declared.networks, parameters.network, shape)  # type: ignore[union-attr] # as was just asked
    if (
        job.spec.actors.precision == "INT8" and not job.spec.algorithm.has_own_code
    ):  # whose network is built where it acts alone
        network = algorithm(chosen.name).build(spec, parameters, job.spec.environment.parameters)
        if not network.in_order:
            raise NetworkProblem(NOT_IN_INT8)
