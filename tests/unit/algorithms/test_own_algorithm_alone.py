"""What an algorithm of the user's own may not do though each of its calls works: keep something, draw its chance elsewhere, say
one thing and do another."""

import re
from pathlib import Path
from typing import Any

import pytest
from rljob.algorithms.conformance import check
from rljob.algorithms.registry import algorithm
from rljob.api import EnvironmentParameters
from rljob.envs import EnvironmentSpec
from rljob.loading import PluginProblem

from tests.support.own_algorithm import job, tried, unrolls
from tests.support.specs import spec_of

LOSS = "    def loss(self, params, online, target, batch):\n"
VALUES = "    def action_values(self, net, observation):\n"
DRAWS = "; the generator has random(size) and integers(low, high, size), with the number of environments first"


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


def made_with(attribute: str, value: str, use: str) -> tuple[str, str]:
    """The change that gives the plug-in an attribute, and uses it whenever it acts."""
    return VALUES, f"    def __init__(self):\n        self.{attribute} = {value}\n\n{VALUES}        {use}\n"


METRICS = 'metrics = ("q",)'
KEPT = [
    (
        ("        return Network(", "        self.actions = spec.num_actions\n        return Network("),
        "build",
        "actions",
    ),
    ((LOSS, f"{LOSS}        self.updates = getattr(self, 'updates', 0) + 1\n"), "loss", "updates"),
    (made_with("seen", "[]", "self.seen.append(1)"), "action_values", "seen"),
    (made_with("mean", "torch.zeros(3)", "self.mean += 1"), "action_values", "mean"),
    (made_with("f", "lambda: 0", "self.f = lambda: 1"), "action_values", "f"),
]
ASKED = [
    ("generator.uniform(size=rows) < epsilon", "has no attribute 'uniform'"),
    ("np.full(rows, generator.random()) < epsilon", "missing 1 required positional argument: 'size'"),
    ("generator.random(rows, dtype=np.float32) < epsilon", "unexpected keyword argument 'dtype'"),
    ("generator.integers(actions, size=rows)", "missing 1 required positional argument: 'high'"),
]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        *(
            ([(METRICS, f"metrics = {declared}")], [f"loss: metrics: expected {said}, as the attribute metrics says, got ['q']"])
            for declared, said in (
                ('("q", "spread")', "metrics q, spread"), ("()", "no metrics"), ('("spread",)', "metrics spread")
            )
        ),
        ([('{"q": taken.detach().mean()}', "None")], ["loss: metrics: expected a dict of metrics by name, got None"]),
        (
            [("taken = online(batch.observation)", "taken = online(batch.observation[:, :, :2])")],
            [
                "in forward: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
                "; the TransitionBatch has observation [4, 1, 4], next_observation [4, 1, 4], action [4], n_step_return [4], "
                "discount [4], weight [4], steps []",
            ],
        ),
        ([(LOSS, f"{LOSS}        raise NotImplementedError\n")], ["in loss: NotImplementedError"]),
        *(
            ([IMPORTS, decides(chosen)], ["decide failed: plugin_", ", in decide: ", asked, DRAWS])
            for chosen, asked in ASKED
        ),
        *(
            (
                [change],
                [
                    f": {function}: expected an algorithm that keeps no state (networks and parameters are handed to every "
                    f"call), got one that changed self.{name}"
                ],
            )
            for change, function, name in KEPT
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told(tmp_path: Path, changes: list[tuple[str, str]], parts: list[str]) -> None:
    with pytest.raises(PluginProblem, match=".*".join(map(re.escape, parts))):
        tried(job(tmp_path, *changes))


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
    said = "decide: expected the same decision from a generator in the same state.* got another action the second time$"
    with pytest.raises(PluginProblem, match=said):
        tried(job(tmp_path, IMPORTS, decides(chosen), parameters={"epsilonBase": base, "epsilonExponent": 0}))


UNKNOWN = "np.full(rows, np.nan, np.float32)"
MADE = (
    "    def __init__(self):\n        self.f, self.lock, self.weights = lambda: 0, threading.Lock(), torch.ones(2)\n\n"
    "    @cached_property\n    def support(self):\n        return torch.zeros(3)\n\n"
)


@pytest.mark.parametrize(
    "changes",
    [
        *(
            [IMPORTS, decides(chosen, *more)]
            for chosen in (
                "np.where(generator.random(rows) < epsilon, generator.integers(0, actions, rows), outputs.argmax(1))",
                "(generator.random((rows, actions)) * np.exp(outputs)).argmax(1)",
                "outputs.argmax(1)",
            )
            for more in ((), (UNKNOWN, UNKNOWN))
        ),
        [
            ("import torch\n", "import threading\nfrom functools import cached_property\nimport torch\n"),
            (VALUES, f"{MADE}{VALUES}        self.support, self.f()\n"),
        ],
    ],
)
def test_chance_may_come_from_the_generator_and_what_it_was_made_with_is_no_state(
    tmp_path: Path, changes: list[tuple[str, str]]
) -> None:
    tried(job(tmp_path, *changes))


def passing(passes: str, body: str | None = None) -> str:
    """Methods of an algorithm that says how many passes its minibatches make, and may make them."""
    made = "" if body is None else f"    def minibatches(self, params, online, batch):\n        {body}\n\n"
    return f"{made}    def passes(self, params):\n        return {passes}\n"


def taking(function: str, arguments: str, taken: str) -> str:
    """The method that says of each action that it had this logarithm of a probability."""
    return (
        f"    def {function}(self, {arguments}):\n        import dataclasses\n        import numpy as np\n"
        f"        found = super().{function}({arguments})\n"
        f"        return dataclasses.replace(found, taken=np.full_like(found.taken, {taken}))\n"
    )


OF_STEPS = (
    "batch = batch._replace(advantage=batch.reward, value_target=batch.reward)\n"
    "        yield from minibatches_of_steps(batch, 3, 4)"
)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        *(
            (
                passing(passes, body),
                rf"minibatches: expected {wanted} steps in all, since passes\(\) is {passes} and a batch has 4 unrolls of 8 "
                rf"steps, got {got}$",
            )
            for body, passes, wanted, got in (
                ("yield from minibatches_of_unrolls(batch, 2, 2)", "1", 32, 64),
                ("yield batch", "2", 64, 32),
                ("while True:\n            yield batch", "1", 32, 352),
                (OF_STEPS, "2", 64, 96),
            )
        ),
        *((passing(each), f"passes: expected an integer of 1 or more, got {each}") for each in ("0", "1.5", "None")),
        # Experience would refuse such an unroll, and an actor play it again and again.
        *(
            (
                taking(function, arguments, taken),
                rf"{function}: taken: expected log mu\(a\|s\) of each action, a finite number of 0 or less, got {said}$",
            )
            for function, arguments in (
                ("decide", "outputs, epsilon, generator, choices"),
                ("random_decision", "num_envs, choices, generator"),
            )
            for taken, said in (("0.5", "0.5"), ("float('nan')", "nan"), ("-float('inf')", "-inf"))
        ),
    ],
)
def test_a_mistake_with_unrolls_is_told(tmp_path: Path, methods: str, said: str) -> None:
    with pytest.raises(PluginProblem, match=said):
        tried(unrolls(tmp_path, methods))
