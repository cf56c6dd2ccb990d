"""Layers of the user's own in the place of the built-in convolutions, with parameters of their own type."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.algorithms.apex_dqn.network import QNetwork, QNetworkConfig
from rljob.algorithms.conformance import check_own_parts
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.algorithms.registry import with_own_parts
from rljob.api import EnvironmentParameters, ManifestError, RLJob, parse_job
from rljob.loading import PluginProblem

from tests.support.paths import ROOT
from tests.support.specs import spec_of

RESNET = f"{ROOT / 'examples' / 'plugins' / 'impala_resnet.py'}:ImpalaResNet"
SMALL = {"channels": [4, 8], "blocks": 1}
FRAMES = torch.randint(0, 255, (3, 4, 42, 42), dtype=torch.uint8)
PONG = spec_of("Pong", (42, 42), "uint8", 4, 6, 4)
NATIVE = ("fp32", "bf16")
_numbers = itertools.count()


def written(folder: Path, text: str) -> str:
    file = folder / f"net_{next(_numbers)}.py"
    file.write_text(f"from torch import nn\nfrom rljob.plugins import ParameterSet\n{text}")
    return f"{file}:make"


def job(network: str, parameters: dict[str, Any], environment: str = "ALE/Pong-v5", block: str = "impala") -> RLJob:
    kind = "IMPALA" if block == "impala" else "ApeXDQN"
    algorithm = {"type": kind, "network": network, "networkParameters": parameters}
    spec = {"algorithm": algorithm, "environment": {"id": environment, "atari": {"frameSize": 42}}}
    return parse_job({"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "own"}, "spec": spec})


@pytest.mark.parametrize("centred", [False, True])
def test_every_way_to_compute_it_means_the_same(centred: bool) -> None:
    torch.manual_seed(0)
    network = PolicyNetwork(
        PolicyConfig(RESNET, PONG, EnvironmentParameters(centre_input=centred), hidden=16, own=SMALL)
    )
    if centred:
        network.centre(torch.full((42, 42), 87.0))
    assert sum(isinstance(each, torch.nn.Conv2d) for each in network.modules()) == 6
    plans = network.compute_plans("FP32", native=NATIVE) + network.compute_plans("BF16", native=NATIVE)
    wanted = network.compute(plans[0])(FRAMES).logits.clone()
    for plan in plans:
        torch.testing.assert_close(network.compute(plan)(FRAMES).logits, wanted, rtol=0.1, atol=0.02)


def test_action_values_come_out_of_it_too() -> None:
    network = QNetwork(QNetworkConfig(RESNET, PONG, hidden_units=16, own=SMALL))
    assert (network(FRAMES).shape, len(network.dense)) == ((3, 6), 2), "one dense layer, and what it is seen through"


def test_a_vector_is_shown_flat(tmp_path: Path) -> None:
    name = written(tmp_path, "def make(inputs):\n    return nn.Linear(*inputs, 7)\n")
    network = PolicyNetwork(PolicyConfig(name, spec_of("Vector", (4,), "float32", 1, 3)))
    assert network(torch.zeros(5, 1, 4)).logits.shape == (5, 3)
    assert [str(plan) for plan in network.compute_plans("FP32", native=("fp32",))] == ["fp32"]


@pytest.mark.parametrize("block", ["impala", "apeXDQN"])
def test_its_parameters_are_checked_as_its_type_says(block: str) -> None:
    with_own_parts(job(RESNET, {"channels": [4]}, block=block))
    with pytest.raises(ManifestError) as caught:
        with_own_parts(job(RESNET, {"channels": [0], "block": 1}, block=block))
    found = {
        problem.path.removeprefix("spec.algorithm.networkParameters."): problem.message
        for problem in caught.value.problems
    }
    assert list(found) == ["channels[0]", "block"]
    assert "integer from 1 to 1,024" in found["channels[0]"]
    assert "did you mean 'blocks'" in found["block"]


def test_parameters_of_a_built_in_network_are_refused() -> None:
    with pytest.raises(ManifestError, match="networkParameters: allowed: only beside a network of one's own"):
        with_own_parts(job("Compact", {"channels": [4]}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def make(a, b, c): ...", r"has to take \(inputs\) or \(inputs, parameters\), but takes \(a, b, c\)"),
        (
            "def make(inputs, parameters): ...",
            "second argument, 'parameters', has to be a subclass of .* but is not written",
        ),
        ("def make(inputs, parameters: dict): ...", "has to be a subclass of .* but is dict"),
        ("def make(inputs): return 3", "a torch.nn.Module was expected of it, what came is int"),
        (
            "def make(inputs):\n    raise ValueError('too small')",
            r"can't be made for inputs \(4, 42, 42\): net_\d+\.py:4, in make: ValueError: too small",
        ),
        ("def make(inputs): return nn.Conv2d(3, 8, 3)", r"it failed on float32 \(2, 4, 42, 42\): RuntimeError"),
        (
            "class Viewing(nn.Module):\n    def forward(self, x):\n        return x.view(len(x), -1)\n"
            "def make(inputs): return Viewing()",
            r"it failed on float32 \(2, 4, 42, 42\) in channels-last order: net_\d+\.py:5, in forward: RuntimeError: view",
        ),
        (
            "def make(inputs): return nn.BatchNorm2d(4)",
            r"build: expected layers that see each row by itself .*, got a BatchNorm2d",
        ),
        ("def make(inputs): return nn.Dropout(0.1)", "layers that are the same where it acts .*, got a Dropout$"),
        (
            "def make(inputs): return nn.Sequential(nn.Flatten(2), nn.MultiheadAttention(1764, 2, dropout=0.1))[:1].append("
            "Held(nn.MultiheadAttention(4, 2, dropout=0.1)))\nclass Held(nn.Identity):\n"
            "    def __init__(self, inner):\n        super().__init__()\n        self.inner = inner",
            "layers that are the same where it acts .*, got a MultiheadAttention$",
        ),
        (
            "import torch\nclass Random(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.register_buffer('seen_by', torch.randn(1764, 8), persistent=False)\n"
            "    def forward(self, x):\n        return x.flatten(2) @ self.seen_by\ndef make(inputs): return Random()",
            r"build: expected a network whose outputs follow from its weights and saved buffers.* from a second one",
        ),
        (
            "class Mean(nn.Module):\n    def forward(self, x):\n        return x.mean()\ndef make(inputs): return Mean()",
            r"features \[2, ...\] were expected, what came is \(\)",
        ),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PluginProblem, match=said):
        check_own_parts(with_own_parts(job(written(tmp_path, text), {})), PONG)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def make(inputs): return nn.Flatten()", "its factory has no second argument"),
        (
            "class Nothing(ParameterSet):\n    pass\n\ndef make(inputs, parameters: Nothing): return nn.Flatten()",
            "Nothing has no fields",
        ),
    ],
)
def test_parameters_of_a_network_that_takes_none(tmp_path: Path, text: str, why: str) -> None:
    name = written(tmp_path, text)
    with_own_parts(job(name, {}))
    with pytest.raises(ManifestError) as caught:
        with_own_parts(job(name, {"width": 8, "depth": 2}))
    said = f"not allowed: {Path(name).name} takes no parameters, since {why}"
    assert [(each.path, each.message) for each in caught.value.problems] == [("spec.algorithm.networkParameters", said)]
