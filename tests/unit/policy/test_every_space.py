"""Every space behind training: scored, played with, exported, seen by a network of one's own, and rewarded by a critic."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rljob
import torch
from gymnasium.vector.utils import batch_space, iterate
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters
from rljob.api.networks import NetworkProblem
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.envs import describe_environment, make_single_environment
from rljob.evaluation.player import judged_policy
from rljob.evaluation.score import Sitting
from rljob.observation import each, rows_of
from rljob.policy.export import export
from rljob.policy.trained import Policy
from torch import Tensor, nn

from tests.support.every_space import ACTIONS, CONTINUOUS, LENGTH, OPEN
from tests.support.scoring import score

ID = "tests.support.every_space:EverySpace"
CHOICES = [
    ("picture", "discrete"),
    ("discrete", "from_one"),
    ("vector", "several"),
    ("nested", "dict"),
    ("tuple", "bits"),
]
PAIRS = [*CHOICES, *(("vector", name) for name in (*CONTINUOUS, *OPEN)), ("nested", "mixed")]
KINDS: dict[str, tuple[str, Any]] = {
    "ApeXDQN": ("ApeXDQN", ApeXDQNParameters(hidden_units=8, evaluation_epsilon=0.3)),
    "IMPALA": ("IMPALA", ImpalaParameters(hidden_units=8)),
    "LSTM": ("IMPALA", ImpalaParameters(hidden_units=8, recurrent="LSTM", lstm_units=4)),
}
CASES = [
    (*pair, kind, how)
    for pair in PAIRS
    for kind in KINDS
    for how in ("Clipped", "Squashed")
    if (kind != "ApeXDQN" or pair in CHOICES) and (how == "Clipped" or pair[1] in CONTINUOUS)
]


def trained(folder: Path, observation: str, action: str, kind: str, *, actions: Any = "Clipped", **more: Any) -> Policy:
    """A policy that has learned nothing, whose environment allows only some actions and asserts that it is given no others."""
    name, params = KINDS[kind]
    params = params.model_copy(update=more)
    kwargs = {"observation": observation, "action": action, "masked": True}
    env_params = EnvironmentParameters(kwargs=kwargs, frame_stack=2, actions=actions)
    spec = describe_environment(ID, env_params)
    torch.manual_seed(3)
    network = algorithm(name).build(spec, params, env_params)
    if spec.controls:  # means far beyond the bounds, too
        with torch.no_grad():
            network.policy.weight *= 30
    tensors = {f"online.{key}": tensor for key, tensor in network.state_dict().items()}
    document = PolicyIdentity(name, spec, params, env_params).document()
    checkpoint.write(folder / "checkpoints", checkpoint.checkpoint_name(1, 100), tensors, document)
    return rljob.load_policy(folder)


def judged(policy: Policy) -> Any:
    """What judges it."""
    return judged_policy(algorithm(policy.algorithm), policy.stored.module, policy.stored.params)


def scored(policy: Policy) -> Any:
    """An environment that it is judged in."""
    return make_single_environment(ID, policy.stored.env_params, for_scoring=True, spec=policy.stored.spec)


@pytest.mark.parametrize(("observation", "action", "kind", "how"), CASES)
def test_it_is_scored_with_random_moves_too(
    observation: str, action: str, kind: str, how: str, tmp_path: Path, closes: Any
) -> None:
    policy = trained(tmp_path, observation, action, kind, actions=how)
    envs = [closes(scored(policy)) for _ in range(2)]
    sitting = Sitting(judged(policy), envs, epsilon=0.5, spec=policy.stored.spec)
    for game in range(2):
        sitting.deal(game)
    assert [game.length for _ in range(LENGTH) for game in sitting.step()] == [LENGTH, LENGTH]


@pytest.mark.parametrize("action", ["several", "number", "mixed"])
def test_a_single_game_is_scored_as_for_a_video(action: str, tmp_path: Path, closes: Any) -> None:
    """With random moves of its space, which is not one Discrete."""
    policy = trained(tmp_path, "vector", action, "IMPALA")
    found = score(judged(policy), closes(scored(policy)), 2, seed=1, epsilon=0.5, spec=policy.stored.spec)
    assert found.lengths == (LENGTH, LENGTH)


@pytest.mark.parametrize("action", ["number", "mixed"])
def test_it_is_exported_to_onnx(action: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    written = export(trained(tmp_path / "run", "vector", action, "LSTM", actions="Squashed"), "onnx", tmp_path / "out")
    assert written.difference < 1e-4


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("observation", "action", "kind", "how"), CASES)
def test_it_is_played_with(
    observation: str, action: str, kind: str, how: str, deterministic: bool, tmp_path: Path, closes: Any
) -> None:
    policy = trained(tmp_path, observation, action, kind, actions=how)
    env = closes(policy.environment())
    memory = policy.new_memory(1) if policy.memory_units else None
    seen, _ = env.reset(seed=1)
    for _ in range(LENGTH):
        (chosen,) = actions(policy, env, policy.act(each(lambda of: of[None], seen), deterministic, memory=memory))
        seen, *_ = env.step(chosen)
    assert env.action_space == ACTIONS[action] or not policy.stored.spec.controls


@pytest.mark.parametrize("form", ["torchscript", "safetensors"])
@pytest.mark.parametrize(("observation", "action", "kind", "how"), CASES)
def test_it_is_exported(observation: str, action: str, kind: str, how: str, form: str, tmp_path: Path) -> None:
    written = export(trained(tmp_path / "run", observation, action, kind, actions=how), form, tmp_path / "out")
    assert (written.origin, written.difference < 1e-4) == (ID, True)
    about = json.loads(written.about.read_text(), parse_constant=pytest.fail)
    assert ("leaves" in about["actions"]) == (action in {**CONTINUOUS, **OPEN})


def actions(policy: Policy, env: Any, chosen: Any) -> list[Any]:
    """The rows of a batch of actions, as its environment takes them."""
    if not policy.stored.spec.controls:
        return list(chosen)
    return [as_int(action) for action in iterate(batch_space(env.action_space, 1), chosen)]


def as_int(action: Any) -> Any:
    """``action`` with numpy's whole numbers as Python's, which Gymnasium's own vectors do not do."""
    match action:
        case tuple():
            return tuple(map(as_int, action))
        case dict():
            return {key: as_int(part) for key, part in action.items()}
        case np.integer():
            return int(action)
    return action


class OwnLayers(nn.Module):
    """Sees each leaf by its path."""

    def __init__(self, inputs: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        assert (inputs["cameras.0"], inputs["body.mode"]) == ((6, 16, 16), (3,))
        assert "info.action_mask" not in inputs
        self.joints = nn.Linear(inputs["body.joints"][0], 5)
        self.camera = nn.Conv2d(6, 2, 16)

    def forward(self, seen: dict[str, Tensor]) -> Tensor:
        return torch.cat([self.joints(seen["body.joints"]), self.camera(seen["cameras.0"]).flatten(1)], dim=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_of_ones_own_sees_the_leaves_by_name(kind: str, tmp_path: Path, closes: Any) -> None:
    policy = trained(tmp_path, "nested", "tuple", kind, network=f"{__name__}:OwnLayers")
    assert type(policy.stored.module.convolutions[0]).__name__ == "OwnLayers"
    env = closes(policy.environment())
    seen, _ = env.reset(seed=1)
    memory = policy.new_memory(1) if policy.memory_units else None
    assert policy.act(each(lambda of: of[None], seen), memory=memory).shape == (1, 3)


def test_a_critic_leaf_moves_values_and_no_action() -> None:
    env_params = EnvironmentParameters(kwargs={"observation": "nested"}, leaves={"hidden": "critic"})
    spec = describe_environment(ID, env_params)
    net = algorithm("IMPALA").build(spec, ImpalaParameters(hidden_units=8), env_params)
    generator = np.random.default_rng(0)
    seen = {column.name: torch.from_numpy(column.drawn(generator, 4)) for column in spec.columns}
    leaf = next(leaf for leaf in spec.observation if leaf.role == "critic")
    other = {name: array.clone() for name, array in seen.items()}
    other[leaf.column][..., leaf.span] += 1.0
    first, second = net(seen), net(other)
    assert torch.equal(first.logits, second.logits)
    assert not torch.equal(first.value, second.value)
    assert rows_of(seen) == 4
    assert "hidden" in str(spec.untaken("ApeXDQN", algorithm("ApeXDQN").takes))


def test_what_an_algorithm_does_not_take_is_refused_in_a_sentence() -> None:
    problem = describe_environment(ID, EnvironmentParameters(kwargs={"masked": True})).untaken("Own", frozenset())
    assert problem == "Own does not know masks, but info.action_mask has one (actionMasks: Ignored does without)"
    several = describe_environment(ID, EnvironmentParameters(kwargs={"action": "several"}))
    assert several.untaken("Own", frozenset()) == "Own takes one Discrete action, but there are 2 choices"
    assert issubclass(NetworkProblem, ValueError)
