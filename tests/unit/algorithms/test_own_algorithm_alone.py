"""What an algorithm of the user's own may not do though each of its calls works: keep something, draw its chance elsewhere, say
one thing and do another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rljob.acting.draws import GroupedDraws
from rljob.algorithms import algorithm
from rljob.algorithms.conformance import check
from rljob.algorithms.conformance_acting import RestrictedGenerator
from rljob.api import EnvironmentParameters
from rljob.envs import EnvironmentSpec
from rljob.loading import PluginProblem

from tests.support.own_algorithm import job, tried, unrolls
from tests.support.specs import spec_of

LOSS = "    def loss(self, params, online, target, batch):\n"
VALUES = "    def action_values(self, net, observation):\n"
DRAWS = (
    "the generator {asked}; there is random(size) and integers(low, high, size), where size, or its first extent, is the number "
    "of environments, here 3"
)


@pytest.fixture(autouse=True)
def path_as_before() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def decides(chosen: str, taken: str = "outputs.max(1)", value: str = "outputs.max(1)") -> tuple[str, str]:
    """The change that has the plug-in decide so."""
    text = "    def decide(self, outputs, epsilon, generator, choices):\n        rows, actions = outputs.shape\n"
    text += f"        action = {chosen}\n"
    text += f"        return Decision(action.astype(np.int64), {taken}, {value})\n\n"
    return VALUES, f"{text}{VALUES}"


CARTPOLE = spec_of("CartPole-v1", (4,), "float32", 1, 2, 1, "")
PONG = spec_of("Pong", (42, 42), "uint8", 4, 6, 4, "")
IMPORTS = ("import torch\n", "import numpy as np\nimport torch\nfrom rljob.plugins import Decision\n")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ApeXDQN", {}),
        ("IMPALA", {}),
        ("IMPALA", {"recurrent": "LSTM", "epochs": 2, "minibatches": 4}),
        ("PPO", {"epochs": 3, "minibatches": 5, "batch_size": 5}),
        ("PPO", {"recurrent": "LSTM", "recompute_advantages": True}),
    ],
)
@pytest.mark.parametrize("spec", [CARTPOLE, PONG], ids=["vector", "image"])
def test_what_is_built_in_keeps_the_rules(name: str, parameters: dict[str, Any], spec: EnvironmentSpec) -> None:
    method = algorithm(name)
    params = method.parameters(network="Compact" if spec is PONG else "MLP", **parameters)
    check(name, method, params, spec, EnvironmentParameters())


def refused(folder: Path, *changes: tuple[str, str]) -> str:
    with pytest.raises(PluginProblem) as caught:
        tried(job(folder, *changes))
    return str(caught.value)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ('("q", "spread")', "loss: metrics: expected metrics q, spread, as the attribute metrics says, got ['q']"),
        ("()", "loss: metrics: expected no metrics, as the attribute metrics says, got ['q']"),
        ('("spread",)', "loss: metrics: expected metrics spread, as the attribute metrics says, got ['q']"),
    ],
)
def test_metrics_are_those_that_are_declared(tmp_path: Path, declared: str, said: str) -> None:
    assert said in refused(tmp_path, ('metrics = ("q",)', f"metrics = {declared}"))


def test_metrics_that_are_none(tmp_path: Path) -> None:
    said = refused(tmp_path, ('{"q": taken.detach().mean()}', "None"))
    assert "loss: metrics: expected a dict of metrics by name, got None" in said


def test_shapes_that_do_not_fit_come_with_those_of_the_batch(tmp_path: Path) -> None:
    said = refused(tmp_path, ("taken = online(batch.observation)", "taken = online(batch.observation[:, :, :2])"))
    assert "in forward: RuntimeError: mat1 and mat2 shapes cannot be multiplied" in said
    assert said.endswith(
        "; the TransitionBatch has observation [4, 1, 4], next_observation [4, 1, 4], action [4], n_step_return [4], "
        "discount [4], weight [4], steps []"
    )
    said = refused(tmp_path, (LOSS, f"{LOSS}        raise NotImplementedError\n"))
    assert said.endswith("in loss: NotImplementedError"), said


@pytest.mark.parametrize(
    ("chosen", "asked"),
    [
        ("generator.uniform(size=rows) < epsilon", "has no uniform"),
        ("np.full(rows, generator.random()) < epsilon", "was asked for random()"),
        ("generator.random((1, rows))[0] < epsilon", "was asked for random((1, 3))"),
        ("generator.random(rows, dtype=np.float32) < epsilon", "was asked for random(3, dtype="),
        ("generator.integers(actions, size=rows)", "was asked for integers(2, size=3)"),
        ("generator.integers(0, np.full(rows, actions), rows)", "was asked for integers(0, array([2, 2, 2]), 3)"),
    ],
)
def test_what_the_generator_does_not_have(tmp_path: Path, chosen: str, asked: str) -> None:
    said = refused(tmp_path, IMPORTS, decides(chosen))
    assert "decide failed: plugin_" in said
    assert ", in decide: " in said
    assert f"the generator {asked}" in said
    assert DRAWS.partition("; ")[2] in said


def test_what_the_generator_has_is_what_groups_have() -> None:
    """Every call that is allowed in the check works where environments act in groups, and the other way round."""

    def grouped() -> GroupedDraws:
        return GroupedDraws(np.random.default_rng(0), 1)

    for size in (3, (3,), (3, 2), np.zeros((3, 2)).shape):
        assert np.array_equal(RestrictedGenerator(0, 3).random(size), grouped().random(size))
        assert np.array_equal(RestrictedGenerator(0, 3).random(size=size), grouped().random(size=size))
        assert np.array_equal(RestrictedGenerator(0, 3).integers(0, 5, size), grouped().integers(0, 5, size))
        assert np.array_equal(
            RestrictedGenerator(0, 3).integers(0, high=5, size=size), grouped().integers(0, high=5, size=size)
        )
    for made in (RestrictedGenerator(0, 3), grouped()):
        with pytest.raises((TypeError, ValueError)):
            made.random(np.int64(3))
        with pytest.raises((TypeError, ValueError)):
            made.integers(0, 5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "chosen",
    [
        "np.where(np.random.random(rows) < epsilon, generator.integers(0, actions, rows), outputs.argmax(1))",
        "np.where(generator.random(rows) < epsilon, np.random.default_rng().integers(0, actions, rows), outputs.argmax(1))",
        "torch.distributions.Categorical(logits=torch.as_tensor(outputs)).sample().numpy()",
    ],
)
@pytest.mark.parametrize("base", [0.4, 0.01])
def test_chance_that_does_not_come_from_the_generator(tmp_path: Path, chosen: str, base: float) -> None:
    with pytest.raises(
        PluginProblem, match="decide: expected the same decision from a generator in the same state"
    ) as caught:
        tried(job(tmp_path, IMPORTS, decides(chosen), parameters={"epsilonBase": base, "epsilonExponent": 0}))
    assert str(caught.value).endswith("got another action the second time")


@pytest.mark.parametrize(
    "chosen",
    [
        "np.where(generator.random(rows) < epsilon, generator.integers(0, actions, rows), outputs.argmax(1))",
        "(generator.random((rows, actions)) * np.exp(outputs)).argmax(1)",
        "outputs.argmax(1)",
    ],
)
def test_chance_that_does(tmp_path: Path, chosen: str) -> None:
    tried(job(tmp_path, IMPORTS, decides(chosen)))
    unknown = "np.full(rows, np.nan, np.float32)"
    tried(job(tmp_path, IMPORTS, decides(chosen, taken=unknown, value=unknown)))


def made_with(attribute: str, value: str, use: str) -> tuple[str, str]:
    """The change that gives the plug-in an attribute, and uses it whenever it acts."""
    return VALUES, f"    def __init__(self):\n        self.{attribute} = {value}\n\n{VALUES}        {use}\n"


@pytest.mark.parametrize(
    ("change", "function", "name"),
    [
        (("        return Network(", "        self.actions = spec.num_actions\n        return Network("), "build", "actions"),
        ((LOSS, f"{LOSS}        self.updates = getattr(self, 'updates', 0) + 1\n"), "loss", "updates"),
        (made_with("seen", "[]", "self.seen.append(1)"), "action_values", "seen"),
        (made_with("mean", "torch.zeros(3)", "self.mean += 1"), "action_values", "mean"),
        (made_with("f", "lambda: 0", "self.f = lambda: 1"), "action_values", "f"),
    ],
)  # fmt: skip
def test_an_algorithm_that_keeps_something(tmp_path: Path, change: tuple[str, str], function: str, name: str) -> None:
    assert refused(tmp_path, change).endswith(
        f": {function}: expected an algorithm that keeps no state (networks and parameters are handed to every call), got one "
        f"that changed self.{name}"
    )


def test_what_it_was_made_with_is_no_state(tmp_path: Path) -> None:
    made = (
        "    def __init__(self):\n        self.f, self.lock, self.weights = lambda: 0, threading.Lock(), torch.ones(2)\n\n"
        "    @cached_property\n    def support(self):\n        return torch.zeros(3)\n\n"
    )
    imports = ("import torch\n", "import threading\nfrom functools import cached_property\nimport torch\n")
    tried(job(tmp_path, imports, (VALUES, f"{made}{VALUES}        self.support, self.f()\n")))


@pytest.mark.parametrize(
    ("body", "passes", "wanted", "got"),
    [
        ("yield from minibatches_of_unrolls(batch, 2, 2)", 1, 32, 64),
        ("yield batch", 2, 64, 32),
        ("while True:\n            yield batch", 1, 32, 352),
        (
            "batch = batch._replace(advantage=batch.reward, value_target=batch.reward)\n"
            "        yield from minibatches_of_steps(batch, 3, 4)",
            2,
            64,
            96,
        ),
    ],
)
def test_passes_are_those_that_minibatches_make(tmp_path: Path, body: str, passes: int, wanted: int, got: int) -> None:
    methods = f"    def minibatches(self, params, online, batch):\n        {body}\n\n"
    with pytest.raises(PluginProblem) as caught:
        tried(unrolls(tmp_path, f"{methods}    def passes(self, params):\n        return {passes}\n"))
    assert str(caught.value).endswith(
        f"minibatches: expected {wanted} steps in all, since passes() is {passes} and a batch has 4 unrolls of 8 steps, got {got}"
    )


@pytest.mark.parametrize("passes", ["0", "1.5", "None"])
def test_passes_that_are_no_number_of_them(tmp_path: Path, passes: str) -> None:
    with pytest.raises(PluginProblem, match=f"passes: expected an integer of 1 or more, got {passes}"):
        tried(unrolls(tmp_path, f"    def passes(self, params):\n        return {passes}\n"))


@pytest.mark.parametrize("function", ["decide", "random_decision"])
@pytest.mark.parametrize("taken", ["0.5", "float('nan')", "-float('inf')"])
def test_unrolls_need_the_probability_of_what_was_done(tmp_path: Path, function: str, taken: str) -> None:
    """Experience would refuse such an unroll, and an actor play it again and again."""
    arguments = "outputs, epsilon, generator, choices" if function == "decide" else "num_envs, choices, generator"
    methods = (
        f"    def {function}(self, {arguments}):\n        import dataclasses\n        import numpy as np\n"
        f"        found = super().{function}({arguments})\n"
        f"        return dataclasses.replace(found, taken=np.full_like(found.taken, {taken}))\n"
    )
    said = (
        rf"{function}: taken: expected log mu\(a\|s\) of each action, a finite number of 0 or less, got (0.5|nan|-inf)$"
    )
    with pytest.raises(PluginProblem, match=said):
        tried(unrolls(tmp_path, methods))
