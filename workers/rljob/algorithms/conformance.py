"""Whether an algorithm gives the loops what they expect of it, tried on random observations: which function, what was expected,
what came. For one of the user's own, or a network of one's own, before anything is trained."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.conformance_acting import check_acting
from rljob.algorithms.conformance_learning import check_learning
from rljob.algorithms.registry import algorithm
from rljob.algorithms.shapes import first_difference, shapes_of, words_of
from rljob.algorithms.trial import Trial
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import EnvironmentParameters, RLJob
from rljob.api.networks import NetworkProblem
from rljob.envs.spec import EnvironmentSpec

_ACROSS_ROWS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def check_own_parts(job: RLJob, spec: EnvironmentSpec) -> None:
    """`check` of a job that has an algorithm or a network of its user's own; nothing where all is built in."""
    if not job.spec.algorithm.has_own_code:
        return
    own = job.spec.algorithm
    name = own.name if own.type == "Custom" else own.parameters.network
    check(name, algorithm(own.name), own.parameters, spec, job.spec.environment.parameters)


def check(
    name: str, method: AnyAlgorithm, params: Any, spec: EnvironmentSpec, env_params: EnvironmentParameters
) -> None:
    """Build the network, act, judge and learn once, with a few observations. ``name`` is what messages begin with.

    Raises NetworkProblem for an environment that it does not take, and PluginProblem, with the author's own line where an
    exception was raised; leaves torch's global generator alone.
    """
    if (problem := spec.untaken(name, method.takes, centred=env_params.centre_input)) is not None:
        raise NetworkProblem(problem)
    state = torch.get_rng_state()
    try:
        torch.manual_seed(0)
        trial = Trial(name, method, params, spec, env_params)
        net = _network(trial)
        check_acting(trial, net.eval())
        check_learning(trial, _learner(trial) if method.acting else net.train())
    finally:
        torch.set_rng_state(state)


def _network(trial: Trial) -> FrameNetwork:
    """What ``build`` gives, of which weights are as they have to be."""
    net, expect, env_params = _built(trial), trial.expect, trial.env_params
    expect("build", isinstance(net, FrameNetwork), "a rljob.plugins.FrameNetwork", net)
    expect(
        "build",
        net.centred or not env_params.centre_input,
        "a network that is centred (FrameNetwork(spec, env_params)), as spec.environment.centreInput says",
        "one that is not",
    )
    across = [module for module in net.modules() if isinstance(module, _ACROSS_ROWS)]
    expect(
        "build",
        not across,
        "layers that see each row by itself (GroupNorm and LayerNorm do)",
        across[0] if across else None,
    )
    drops = [
        module
        for module in net.modules()
        if (isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0)
        or (isinstance(module, _DropoutNd) and module.p > 0)
    ]
    expect(
        "build",
        not drops,
        "layers that are the same where it acts and where it learns (a dropout of 0)",
        drops[0] if drops else None,
    )
    other = {name: tensor for name, tensor in net.state_dict().items() if tensor.dtype != torch.float32}
    expect(
        "build",
        not other,
        "weights and buffers of float32",
        ", ".join(f"{name} of {str(tensor.dtype).removeprefix('torch.')}" for name, tensor in other.items()),
    )
    expect("build", next(net.parameters(), None) is not None, "a network with weights", "one without")
    frozen = [name for name, weight in net.named_parameters() if not weight.requires_grad]
    expect("build", not frozen, "weights that all learn (what does not is a buffer)", f"frozen {', '.join(frozen)}")
    # Every process of a run builds the network for itself, and takes the learner's weights.
    if difference := first_difference(shapes_of(net), shapes_of(_built(trial))):
        name, first, second = difference
        expect(
            "build",
            False,
            "the same network from each call, of its arguments alone",
            f"{name} {words_of(first)} and then {words_of(second)}",
        )
    return net


def _learner(trial: Trial) -> FrameNetwork:
    """What ``build_learner`` gives, a part of which is what ``build`` gives."""
    method = trial.method
    net: FrameNetwork = trial.call(
        "build_learner", lambda: method.build_learner(trial.spec, trial.params, trial.env_params)
    )
    part: Any = trial.call("acting", lambda: net.get_submodule(method.acting))
    if difference := first_difference(shapes_of(part), shapes_of(_built(trial))):
        name, first, second = difference
        trial.expect(
            "build_learner",
            False,
            f"{method.acting} of the network that learns to be what build gives",
            f"{name} {words_of(first)} there and {words_of(second)} here",
        )
    return net.train()


def _built(trial: Trial) -> FrameNetwork:
    found: FrameNetwork = trial.call("build", lambda: trial.method.build(trial.spec, trial.params, trial.env_params))
    return found
