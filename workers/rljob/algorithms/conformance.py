"""Whether an algorithm gives the loops what they expect of it, tried on random observations: which function, what was expected,
what came. For one of the user's own, or a network of one's own, before anything is trained.

Here: its network, and what it does with observations; ``trial`` has what it makes of experience.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from rljob.algorithms.acting_rules import ActionValueAlgorithm
from rljob.algorithms.base import AnyAlgorithm, Inference, UnrollAlgorithm
from rljob.algorithms.registry import algorithm
from rljob.algorithms.shapes import first_difference, shapes_of, words_of
from rljob.algorithms.trial import Trial, check_learning
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import EnvironmentParameters, RLJob
from rljob.api.networks import NetworkProblem
from rljob.choices import FORBIDDEN, GroupedDraws, RandomNumbers
from rljob.envs.spec import EnvironmentSpec
from rljob.experience import Decision
from rljob.observation import by_column, each, of_columns

_N = 3
_MANY = 510
"""Environments enough that two decisions by chance are never the same for all of them; a multiple of _N."""
_OFTEN = 0.5
"""The least that each environment explores there."""
_ROUNDING = 1e-4
"""How far above 0 a log-probability may be; as experience takes it."""


def check_acting(trial: Trial, acting: FrameNetwork) -> None:
    """Act on, and judge, a few observations with a network that is only read. Raises PluginProblem."""
    method, params, spec, call = trial.method, trial.params, trial.spec, trial.call
    draws = np.random.default_rng(0)
    seen = of_columns(spec.columns, [column.drawn(draws, _N) for column in spec.columns])
    if spec.mask is not None:  # every second value, beginning with one that is allowed
        by_column(spec.columns, seen)[spec.mask.column][:, -1, spec.mask.span] = 1 - np.arange(spec.mask.size) % 2
    choices = spec.choices(seen)
    outputs = _outputs(trial, acting, seen)
    numbers = outputs.numpy()
    epsilon = call("exploration", lambda: method.exploration(params, 0, 1, _N))
    trial.array("exploration", epsilon, (_N,))
    _decision(trial, "decide", _N, lambda draws: method.decide(numbers.copy(), epsilon.copy(), draws, choices))
    _decision(trial, "random_decision", _N, lambda draws: method.random_decision(_N, choices, draws))
    _decisions(trial, numbers)
    trial.array("state_values", call("state_values", lambda: method.state_values(numbers, choices)), (_N,))
    preferred = call("preferences", lambda: method.preferences(outputs))
    trial.tensor("preferences", preferred, (_N, spec.policy_numbers))
    if choices.allowed is not None:
        masked = bool((preferred.numpy()[:, : spec.num_actions][~choices.allowed] == FORBIDDEN).all())
        trial.expect(
            "preferences",
            masked,
            "numbers of FrameNetwork.masked, since its takes has masks",
            "others for what is not allowed",
        )
    games: Any = [SimpleNamespace(random=np.random.default_rng(0), memory=None) for _ in range(_N)]
    judged: Any = call("evaluation_action", lambda: method.evaluation_action(params, acting, seen, games))
    if not spec.controls:
        return _actions(trial, "evaluation_action", judged, _N)
    if spec.action_sizes:  # what ``Choices.action`` makes of both parts
        both = isinstance(judged, dict) and set(judged) == {"choices", "controls"}
        trial.expect("evaluation_action", both, "a dict of choices and controls, as choices.action makes it", judged)
        _actions(trial, "evaluation_action: choices", judged["choices"], _N)
        judged = judged["controls"]
    return _controls(trial, "evaluation_action", judged, _N)


def _outputs(trial: Trial, acting: FrameNetwork, seen: Any) -> torch.Tensor:
    """What ``infer`` gives for a few observations, each row by itself."""
    method, call, expect = trial.method, trial.call, trial.expect
    memory, size = method.memory_units(trial.params), method.output_size(trial.params, trial.spec.policy_numbers)
    own = isinstance(method, ActionValueAlgorithm) and type(method).infer is ActionValueAlgorithm.infer
    # The author's own function, and how its outputs are called behind its name.
    function, outputs = ("action_values", "") if own else ("infer", ": outputs")
    before = np.zeros((_N, 2, memory), np.float32)
    found = call(function, lambda: method.infer(acting, seen, before))
    expect(function, isinstance(found, Inference), "an Inference(outputs, state)", found)
    trial.tensor(f"{function}{outputs}", found.outputs, (_N, size))
    finite = bool(torch.isfinite(found.outputs).all())
    expect(f"{function}{outputs}", finite, "finite numbers", found.outputs.tolist())
    trial.tensor(f"{function}: state", found.state, (_N, 2, memory))
    again = call(function, lambda: method.infer(acting, seen, before)).outputs
    # The last row, for which the first of a batch may not stand in.
    alone = call(
        f"{function} of one row", lambda: method.infer(acting, each(lambda of: of[-1:], seen), before[-1:])
    ).outputs
    trial.tensor(f"{function} of one row{outputs}", alone, (1, size))
    random = not torch.equal(again, found.outputs)  # as of a network with noise
    by_itself = random or torch.allclose(alone, found.outputs[-1:], rtol=0.01, atol=0.01)
    expect(function, by_itself, "outputs of a row that do not depend on the others", "other ones for it alone")
    # As an actor, or who loads a checkpoint, has it.
    second = _built(trial).eval()
    second.load_state_dict(acting.state_dict())
    theirs = call(function, lambda: method.infer(second, seen, before)).outputs
    expect(
        "build",
        random or torch.allclose(theirs, found.outputs, atol=1e-6),
        "a network whose outputs follow from its weights and saved buffers, which are all that other processes get of it",
        "others from a second one with the same",
    )
    trial.tensor(f"{function}{outputs}", found.outputs, (_N, size), detached=True)
    trial.tensor(f"{function}: state", found.state, (_N, 2, memory), detached=True)
    return found.outputs


def _decisions(trial: Trial, numbers: NDArray[np.float32]) -> None:
    """Decide for many environments: whether the same generator gives the same decisions, for a run replays from its seed."""
    method, choices = trial.method, trial.spec.all_choices
    rungs = trial.call("exploration", lambda: method.exploration(trial.params, 0, 1, _MANY))
    trial.array("exploration", rungs, (_MANY,))
    epsilon = np.where(rungs > 0, np.maximum(rungs, np.float32(_OFTEN)), rungs)
    rows = np.tile(numbers, (_MANY // _N, 1))
    _decision(trial, "decide", _MANY, lambda draws: method.decide(rows.copy(), epsilon.copy(), draws, choices))
    _decision(trial, "random_decision", _MANY, lambda draws: method.random_decision(_MANY, choices, draws))


def _decision(trial: Trial, function: str, rows: int, decide: Callable[[RandomNumbers], Decision]) -> None:
    """A decision for ``rows`` environments, twice, of draws that are the same."""
    found, again = (trial.call(function, lambda: decide(GroupedDraws(np.random.default_rng(0), 2))) for _ in range(2))
    trial.expect(function, isinstance(found, Decision), "a Decision(action, taken, value)", found)
    _actions(trial, f"{function}: action", found.action, rows)
    trial.array(f"{function}: taken", found.taken, (rows,))
    trial.array(f"{function}: value", found.value, (rows,))
    _controls(trial, f"{function}: control", found.control, rows)
    if isinstance(trial.method, UnrollAlgorithm):
        density = trial.spec.controls > 0
        wrong = found.taken[~(np.isfinite(found.taken) & (density | (found.taken <= _ROUNDING)))]
        trial.expect(
            f"{function}: taken",
            not wrong.size,
            f"log mu(a|s) of each action, a finite number{'' if density else ' of 0 or less'}",
            str(wrong[0]) if wrong.size else "",
        )
    names = ("action", "taken", "value", *(["control"] if trial.spec.controls else []))
    differ = [
        name
        for name in names
        if not np.array_equal(getattr(found, name), getattr(again, name), equal_nan=name != "action")
    ]
    trial.expect(
        function,
        not differ,
        "the same decision from a generator in the same state, which all that it draws comes from",
        f"another {differ[0] if differ else ''} the second time",
    )


def _controls(trial: Trial, function: str, found: Any, rows: int) -> None:
    if not trial.spec.controls:
        return
    trial.array(function, found, (rows, trial.spec.controls))
    trial.expect(function, bool(np.isfinite(found).all()), "finite numbers", found.tolist())


def _actions(trial: Trial, function: str, found: Any, rows: int) -> None:
    sizes, shape = trial.spec.action_sizes, (rows, *trial.spec.action_shape)
    fits = isinstance(found, np.ndarray) and found.dtype == np.int64 and found.shape == shape
    trial.expect(function, fits, f"an array of actions int64 {list(shape)}", found)
    inside = bool(((found >= 0) & (found < np.array(sizes))).all())
    most = ", ".join(str(size - 1) for size in sizes)
    trial.expect(function, inside, f"actions from 0 to {most}", found.tolist())


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
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        trial = Trial(name, method, params, spec, env_params)
        net = _network(trial)
        check_acting(trial, net.eval())
        check_learning(trial, _learner(trial) if method.acting else net.train())


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
    _same(trial, "build", net, "the same network from each call, of its arguments alone", "{} and then {}")
    return net


def _learner(trial: Trial) -> FrameNetwork:
    """What ``build_learner`` gives, a part of which is what ``build`` gives."""
    method = trial.method
    net: FrameNetwork = trial.call(
        "build_learner", lambda: method.build_learner(trial.spec, trial.params, trial.env_params)
    )
    part: Any = trial.call("acting", lambda: net.get_submodule(method.acting))
    expected = f"{method.acting} of the network that learns to be what build gives"
    _same(trial, "build_learner", part, expected, "{} there and {} here")
    return net.train()


def _same(trial: Trial, function: str, found: nn.Module, expected: str, came: str) -> None:
    """Whether ``found`` has the weights of what ``build`` gives."""
    name, *shapes = first_difference(shapes_of(found), shapes_of(_built(trial))) or ("", None, None)
    trial.expect(function, not name, expected, f"{name} {came.format(*map(words_of, shapes))}")


def _built(trial: Trial) -> FrameNetwork:
    found: FrameNetwork = trial.call("build", lambda: trial.method.build(trial.spec, trial.params, trial.env_params))
    return found
