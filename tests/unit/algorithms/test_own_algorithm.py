"""An algorithm of the user's own in a job: its parameters typed and checked, itself tried, every mistake told in its words."""

from pathlib import Path
from typing import Any

import pytest
from rljob.algorithms.registry import algorithm, declared_parameters, with_own_parts
from rljob.api import ManifestError, memory_estimate, parse_job, read_manifest, with_files_beside
from rljob.loading import NotHere, PluginProblem

from tests.support.documents import write_example
from tests.support.own_algorithm import PLUGIN, job, tried, unrolls
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "plugins" / "cartpole-qr-dqn.yaml"
PARAMETERS = "spec.algorithm.custom.parameters"


def test_the_example_is_what_it_says() -> None:
    given = parse_job(with_files_beside(read_manifest(EXAMPLE), EXAMPLE.parent))
    parameters: Any = tried(given).spec.algorithm.parameters
    assert (parameters.quantiles, parameters.kappa, parameters.n_step) == (32, 1.0, 3)
    paper = type(parameters)()
    assert (paper.quantiles, paper.kappa, paper.learning_rate, paper.optimizer_epsilon) == (200, 1.0, 5e-5, 0.01 / 32)


def test_the_pages_example_is_whole(tmp_path: Path) -> None:
    manifest = write_example(tmp_path)
    tried(parse_job(with_files_beside(read_manifest(manifest), tmp_path)))


def test_its_parameters_are_in_force_with_every_default(tmp_path: Path) -> None:
    bound = tried(job(tmp_path, parameters={"units": 8, "learningRate": 0.01}))
    parameters: Any = bound.spec.algorithm.parameters
    assert (parameters.units, parameters.learning_rate, parameters.learning_rate_final) == (8, 0.01, 0.01)
    assert (bound.spec.algorithm.custom.parameters["units"], bound.spec.algorithm.shared["batchSize"]) == (8, 256)
    assert "batchSize" not in bound.spec.algorithm.custom.parameters
    assert memory_estimate(bound, frame_bytes=16).total_bytes > 0


CENTRED = {"id": "CartPole-v1", "centreInput": True}


@pytest.mark.parametrize(
    "settings",
    [{"factory": "make"}, {"factory": "Own"}, {"environment": CENTRED}],
    ids=["a function", "the class", "a network that centres its input"],
)
def test_a_factory_is_a_function_or_the_class_and_a_network_may_centre_its_input(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    tried(job(tmp_path, **settings))


def test_a_controller_does_not_import_it(tmp_path: Path) -> None:
    given = job(tmp_path, ("import torch\n", "import a_package_that_nobody_has\n"))
    assert given.spec.algorithm.name.endswith(":make")
    with pytest.raises(TypeError, match="known where it is loaded"):
        _ = given.spec.algorithm.parameters


@pytest.mark.parametrize(
    ("parameters", "path", "said"),
    [
        ({"unit": 3}, "custom.parameters.unit", "unknown field; did you mean 'units'?"),
        ({"units": 0}, "custom.parameters.units", "allowed: an integer from 1 to 100"),
        ({"units": "many"}, "custom.parameters.units", "allowed: an integer from 1 to 100"),
        ({"entropyCost": 0.5}, "entropyCost", ":make has no such parameter; IMPALA and PPO have"),
        ({"learningRateFinal": 0.5}, "learningRateFinal", "allowed: at most learningRate (0.0001)"),
        ({"nStep": 60}, "nStep", "allowed: at most chunkLength"),
        ({"targetUpdateInterval": 0}, "targetUpdateInterval", "the target network would never be updated"),
    ],
)
def test_a_wrong_parameter(tmp_path: Path, parameters: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        with_own_parts(job(tmp_path, parameters=parameters))
    (problem,) = caught.value.problems
    assert problem.path == f"spec.algorithm.{path}"
    assert said in problem.message


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (
            "if value % 2:\n            raise ValueError('allowed: an even number')\n        return value\n",
            ManifestError,
            "units: got 3; allowed: an even number",
        ),
        (
            "return {16: 16}[value]\n",
            PluginProblem,
            r"its parameters can't be checked: plugin_\d+.py:\d+, in known: KeyError: 3",
        ),
    ],
)
def test_a_check_of_the_authors_own_is_told_in_its_words_or_by_the_line_that_fails(
    tmp_path: Path, body: str, kind: type[Exception], said: str
) -> None:
    units = "    units: Annotated[int, Integer(1, 100)] = 16\n"
    check = f"    @pydantic.field_validator('units')\n    @classmethod\n    def known(cls, value):\n        {body}"
    changes = (units, f"{units}\n{check}"), ("import torch\n", "import pydantic\nimport torch\n")
    with pytest.raises(kind, match=said):
        with_own_parts(job(tmp_path, *changes, parameters={"units": 3}))


def test_what_it_learns_from_has_a_place_that_fits(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"spec.replay: required: plugin_\d+.py:make learns from transitions"):
        with_own_parts(job(tmp_path, replay=None))
    with pytest.raises(
        ManifestError, match=r"minSize: got 100; allowed: at least the algorithm.s batchSize \(here 256\)"
    ):
        with_own_parts(job(tmp_path, replay={"rateLimiter": {"minSize": 100}}))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "    return Own()",
            "    return 3",
            "a TransitionAlgorithm or an UnrollAlgorithm .* was expected of it, what came is int",
        ),
        ("    return Own()", "    raise KeyError('x')", r"can't be made: plugin_\d+\.py:\d+, in make: KeyError: 'x'"),
        ("    def action_values(", "    def other(", "can't be made: .*abstract method '?action_values"),
        (
            "    parameters = Parameters\n",
            "",
            "its attribute parameters has to be a class that is a rljob.plugins.Transition",
        ),
        ('    metrics = ("q",)', "    metrics = 'q'", "its attribute metrics has to be a tuple of names"),
        *(
            (
                '    metrics = ("q",)',
                f"    metrics = {names}",
                "its attribute metrics names .* not be told apart in the record",
            )
            for names in (
                ("q", "q"),
                ("q", "updates"),
                ("kind",),
                ("replay/items",),
                ("gradient_norm",),
                ("",),
                ("a\n",),
            )
        ),
        (
            "class Parameters(ActionValueParameterSet):",
            "from rljob.plugins import ParameterSet\nclass Parameters(ParameterSet):",
            r"has to be a class that is a rljob.plugins.TransitionParameterSet, but is <class '.*Parameters'>",
        ),
        (
            "dense_layers(4, units",
            "dense_layers(5, units",
            r"action_values failed: plugin_\d+\.py:\d+, in forward: RuntimeError: mat1",
        ),
        (
            "return net(observation)\n",
            "return net(observation[:1]).expand(len(observation), -1)\n",
            "action_values: expected outputs of a row that do not depend on the others",
        ),
        (
            "return net(observation)\n",
            "return net(observation)[:, :1]\n",
            r"action_values: expected a tensor float32 \[3, 2\], got a tensor float32 \[3, 1\]",
        ),
        (
            "return net(observation)\n",
            "return net(observation)\n\n    def preferences(self, outputs):\n        return outputs[:, :1]\n",
            r"preferences: expected a tensor float32 \[3, 2\], got a tensor float32 \[3, 1\]",
        ),
        (
            "return Network(spec, params.units, env_params)",
            "return nn.Linear(4, 2)",
            "build: expected a rljob.plugins.FrameNetwork, got a Linear",
        ),
        (
            "batch.n_step_return +",
            "batch.reward +",
            r"in loss: AttributeError: .*'reward'; a TransitionBatch has observation, .*n_step_return",
        ),
        (
            "td_abs=error.detach().abs()",
            "td_abs=error.detach().abs().mean()",
            r"loss: td_abs: expected a tensor float32 \[4\], got a tensor float32 \[\]",
        ),
        (", td_abs=error.detach().abs()", "", r"loss: td_abs: expected a tensor float32 \[4\], got None"),
        (
            "error.square()).mean()",
            "error.square())",
            r"loss: value: expected a tensor float32 \[\], got a tensor float32 \[4\]",
        ),
        (
            "error.square()).mean()",
            "error.square()).mean().neg().log()",
            "loss: value: expected a finite number, got nan",
        ),
        (
            "error.square()).mean()",
            "error.detach().square()).mean()",
            "loss: value: expected a number to differentiate, got one without",
        ),
        (
            '{"q": taken',
            '{"value": taken',
            r"loss: metrics: expected metrics q, as the attribute metrics says, got \['value'\]",
        ),
        (
            "import torch\n",
            "import torch\n1 / 0\n",
            r"cannot be imported: plugin_\d+\.py:4, in <module>: ZeroDivisionError",
        ),
        (
            "import torch\n",
            "import torch\nexit(3)\n",
            r"cannot be imported: plugin_\d+\.py:4, in <module>: SystemExit: 3",
        ),
        (
            "def build(self, spec, params, env_params)",
            "def build(self, spec, params)",
            r"build failed: TypeError: .* takes 3 positional .*; it is called as build\(spec, params, env_params\)",
        ),
        (
            "def loss(self, params, online, target, batch)",
            "def loss(self, params, online, batch)",
            r"loss failed: TypeError: .*; it is called as loss\(params, online, target, batch\)",
        ),
        (
            "taken.detach().mean()}",
            "taken.mean()}",
            r"loss: metrics\['q'\]: expected a detached tensor, got one with a gradient",
        ),
        ("error.detach().abs()", "error.abs()", "loss: td_abs: expected a detached tensor, got one with a gradient"),
        (
            "        error = wanted - taken\n",
            "        error = wanted - taken + (taken - taken).sqrt()\n",
            "loss: expected finite gradients, got others for dense.0.weight, .* with a loss that is finite",
        ),
        (
            "        self.head =",
            "        self.other = nn.Linear(2, 2)\n        self.head =",
            "loss: expected a gradient for every weight, got none for other.weight, other.bias",
        ),
        (
            "        self.head =",
            "        self.dense.requires_grad_(False)\n        self.head =",
            r"build: expected weights that all learn \(what does not is a buffer\), got frozen dense.0.weight",
        ),
        (
            "        self.head =",
            "        self.register_buffer('support', torch.arange(3))\n        self.head =",
            "build: expected weights and buffers of float32, got support of int64",
        ),
        (
            "        self.head =",
            "        self.dense.append(nn.BatchNorm1d(units))\n        self.head =",
            r"build: expected layers that see each row by itself \(GroupNorm and LayerNorm do\), got a BatchNorm1d",
        ),
        (
            "return net(observation)\n",
            "return net(observation).softmax(0)\n",
            "action_values: expected outputs of a row that do not depend on the others, got other ones for it alone",
        ),
        (
            "return net(observation)\n",
            "return net(observation).squeeze()\n",
            r"action_values of one row: expected a tensor float32 \[1, 2\], got a tensor float32 \[2\]",
        ),
        (
            "return self.head(self.features(observation))\n",
            "return self.head(self.features(observation)) / 0\n",
            "action_values: expected finite numbers, got",
        ),
        (
            "        error = wanted - taken\n",
            "        exit(3)\n",
            r"loss failed: plugin_\d+\.py:\d+, in loss: SystemExit: 3",
        ),
        (
            "        return Network(",
            "        exit(0)\n        return Network(",
            r"build failed: plugin_\d+\.py:\d+, in build: SystemExit: 0",
        ),
        (
            "super().__init__(spec, env_params)",
            "super().__init__(spec)",
            r"build failed: plugin_\d+\.py:\d+, in __init__: TypeError: .* missing .*'env_params'",
        ),
        (
            "error.square()).mean()",
            "error.square()).sum()",
            r"loss: value: expected the mean of the losses of its two halves, \S+, got \S+ for a batch of both",
        ),
        (
            "error = wanted - taken",
            "error = wanted - taken.mean() + 0.0 * taken",
            "loss: (value|td_abs): expected (the mean of the losses of its two halves|errors of a row that do not depend)",
        ),
        (
            "error = wanted - taken",
            "error = (wanted - wanted.mean()) - taken",
            "loss: value: expected the mean of the losses of its two halves",
        ),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(PluginProblem, match=said):
        tried(job(tmp_path, (old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "        self.head = nn.Linear(units, spec.num_actions)\n",
            "        self.head = nn.Linear(units, spec.num_actions)\n        nn.init.zeros_(self.head.weight)\n"
            "        nn.init.zeros_(self.head.bias)\n",
        ),
        (
            "return self.head(self.features(observation))\n",
            "return self.head(self.dense((observation.flatten(1) > 40).float()))\n",
        ),
        ("nn.Linear(units, spec.num_actions)\n", "nn.Sequential(nn.Linear(units, spec.num_actions), nn.Hardtanh())\n"),
        (
            "return self.head(self.features(observation))\n",
            "return self.head(self.features(observation)) + torch.randn(len(observation), 1)\n",
        ),
    ],
    ids=["a head that begins with zeros", "a threshold that few observations reach", "outputs within bounds", "noise"],
)
def test_a_network_may_begin_with_the_same_outputs_for_all_and_have_noise(tmp_path: Path, old: str, new: str) -> None:
    tried(job(tmp_path, (old, new)))


def test_a_default_that_its_type_does_not_take_is_told_where_it_counts(tmp_path: Path) -> None:
    given = job(tmp_path, ("Integer(1, 100)] = 16", "Integer(1, 100)] = 160"), parameters={})
    with pytest.raises(ManifestError, match=r"custom\.parameters\.units: got 160; allowed: an integer from 1 to 100$"):
        with_own_parts(given)


def test_a_field_without_a_default_is_the_manifests_affair(tmp_path: Path) -> None:
    given = job(tmp_path, ("Integer(1, 100)] = 16", "Integer(1, 100)]"))
    assert "units" in declared_parameters(given.spec.algorithm.name).model_fields
    with pytest.raises(ManifestError, match=r"parameters.units: required"):
        with_own_parts(given)


def test_a_file_that_is_named_as_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        NotHere, match=r"No module named 'beside'; the file beside.py that is here is named beside.py:function"
    ):
        algorithm("beside:make")


def method(name: str, body: str) -> str:
    """A method of an algorithm of unrolls that gives ``body``."""
    arguments = "self, params, online, batch" if name == "loss" else "self, params"
    return f"    def {name}({arguments}):\n        return {body}\n"


MINIBATCHES = "    def minibatches(self, params, online, batch):\n        {}\n"
TARGETS = (
    "_, values = online.unroll(batch.observation, batch.state, batch.ended)\n"
    "        yield batch._replace(advantage=batch.reward, value_target=values[:-1]{})"
)
"""The body of minibatches whose targets may carry a gradient of the network."""


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        (
            MINIBATCHES.format("yield from minibatches_of_steps(batch, 1, 2)"),
            r"minibatches failed: plugin_\d+.py:\d+, in minibatches: ValueError: single steps need advantage \[T, B\] of the "
            r"batch, \[8, 4\] here, got None; batch._replace\(advantage=..., value_target=...\) sets both",
        ),
        (
            MINIBATCHES.format(
                "batch = batch._replace(advantage=batch.reward, value_target=batch.reward[:-1])\n"
                "        yield from minibatches_of_steps(batch, 1, 2)"
            ),
            r"single steps need value_target \[T, B\] of the batch, \[8, 4\] here, got \[7, 4\]",
        ),
        (MINIBATCHES.format("yield from ()"), "minibatches: expected each to be an UnrollBatch, got none at all"),
        (
            MINIBATCHES.format("return batch"),
            "minibatches: expected batches that are yielded, got one that is returned",
        ),
        (
            MINIBATCHES.format("minibatches_of_unrolls(batch, 1, 2)"),
            "minibatches: expected batches that are yielded, got None",
        ),
        (
            MINIBATCHES.format("yield batch.observation, batch.action"),
            r"minibatches: expected each to be an UnrollBatch, got 2 values \(a tensor float32 ",
        ),
        (
            MINIBATCHES.format("yield from minibatches_of_unrolls(batch, 1, 5)"),
            "minibatches: expected batches with something in them, got an empty one of a batch of 4 unrolls of 8 steps",
        ),
        (
            MINIBATCHES.format("yield batch._replace(advantage=batch.rewards)"),
            "no attribute 'rewards'; an UnrollBatch has observation, action, ",
        ),
        (
            MINIBATCHES.format(TARGETS.format("")),
            r"minibatches: value_target: expected a detached tensor, got one with a gradient; torch.no_grad\(\) where online",
        ),
        (method("iteration_lag", "2"), "iteration_lag: expected None, 0 or 1, got 2"),
        (
            method("iteration_lag", "0") + method("refresh_steps", "4"),
            r"refresh_steps: expected 0, since iteration_lag\(\) is 0: .* are of one version each, got 4",
        ),
        (method("refresh_steps", "-1"), "refresh_steps: expected an integer of 0 or more, got -1"),
        (method("largest_divergence", "-0.1"), "largest_divergence: expected a number of 0 or more, got -0.1"),
        (
            method("largest_divergence", "0.1")
            + method("loss", "super().loss(params, online, batch)._replace(divergence=None)"),
            r"loss: divergence: expected a divergence, since largest_divergence\(\) is 0.1, got None",
        ),
        *(
            (
                f"    def {name}({arguments}):\n        return {body}\n",
                rf"{name} failed: plugin_\d+.py:\d+, in {name}: AttributeError: 'numpy.ndarray' object has no attribute '\w+'; "
                r"it is given arrays here, and may be given tensors: torch.as_tensor\(...\) takes both",
            )
            for name, arguments, body in (
                ("infer", "self, net, observation, state", "super().infer(net, observation.float(), state)"),
                ("infer", "self, net, observation, state", "net(observation)"),
                (
                    "evaluation_action",
                    "self, params, net, observation, games",
                    "net(observation).logits.argmax(1).numpy()",
                ),
            )
        ),
    ],
)
def test_a_mistake_with_unrolls_is_told(tmp_path: Path, methods: str, said: str) -> None:
    with pytest.raises(PluginProblem, match=said):
        tried(unrolls(tmp_path, methods))


@pytest.mark.parametrize(
    "methods",
    [
        MINIBATCHES.format("return [batch]"),
        MINIBATCHES.format(TARGETS.format(".detach()")),
        MINIBATCHES.format("yield from minibatches_of_unrolls(batch, 1, 3)"),
        MINIBATCHES.format("yield from minibatches_of_unrolls(batch, 2, 2)")
        + "\n    def passes(self, params):\n        return 2",
        "".join(
            method(*each) for each in (("iteration_lag", "1"), ("refresh_steps", "0"), ("largest_divergence", "0.1"))
        ),
    ],
)
def test_minibatches_and_iterations_that_are_some(tmp_path: Path, methods: str) -> None:
    tried(unrolls(tmp_path, methods))


def subclass(body: str) -> tuple[str, str]:
    """The change that has the plug-in make a ``Mine`` of ``body``."""
    return "def make():\n    return Own()", f"{body}\n\ndef make():\n    return Mine()"


OF_IMPALA = subclass("from rljob.plugins import IMPALA\n\nclass Mine(IMPALA):\n    pass")
OF_PPO = subclass(
    "from rljob.plugins import PPO, PPOParameters\n\nclass Of(PPOParameters):\n    batch_size: int = 8\n\n"
    "class Mine(PPO):\n    parameters = Of"
)


@pytest.mark.parametrize(
    ("change", "stored", "wrong", "said"),
    [
        (OF_IMPALA, "custom.parameters.unrollQueue.capacity", {"unrollQueue": {"capacity": 8}}, "got 8; allowed: at least batch"),
        (OF_PPO, "batchSize", {"minibatches": 3}, "minibatches: got 3; allowed: a divisor of"),  # it has no queue either
    ],
    ids=["IMPALA", "PPO"],
)  # fmt: skip
def test_an_algorithm_of_unrolls_has_no_replay(
    tmp_path: Path, change: tuple[str, str], stored: str, wrong: dict[str, Any], said: str
) -> None:
    bound = tried(job(tmp_path, change, replay=None, parameters={"network": "MLP", "hiddenUnits": 16}))
    assert memory_estimate(bound, frame_bytes=16).path == f"spec.algorithm.{stored}"
    with pytest.raises(ManifestError, match=r"spec.replay: not allowed: .* learns from unrolls"):
        with_own_parts(job(tmp_path, change, parameters={"network": "MLP"}))
    with pytest.raises(ManifestError, match=said):
        with_own_parts(job(tmp_path, change, replay=None, parameters=wrong))


SAME = r"build: expected the same network from each call, of its arguments alone, "
BUILT = "return Network(spec, params.units, env_params)"
OWN_UNITS = "params.units + torch.randint(1, 100, ()).item(), env_params"
OWN_BUFFER = "params.units, env_params)\n        net.register_buffer(f'b{id(net)}', torch.zeros(2)"
OF_PPO_WITHOUT_ITERATIONS = subclass(
    "from rljob.plugins import PPO\n\nclass Mine(PPO):\n    def iteration_lag(self, params):\n        return None"
)


@pytest.mark.parametrize(
    ("change", "settings", "said"),
    [
        (
            (BUILT, f"net = Network(spec, {OWN_UNITS})\n        return net"),
            {},
            rf"{SAME}got dense.0.weight float32 \[\d+, 4\] and then float32 \[\d+, 4\]",
        ),
        ((BUILT, f"net = Network(spec, {OWN_BUFFER})\n        return net"), {}, rf"{SAME}got b\d+ .* and then none"),
        (
            (BUILT, "return Network(spec, params.units, type(env_params)())"),
            {"environment": CENTRED},
            r"build: expected a network that is centred \(FrameNetwork\(spec, env_params\)\), as .*centreInput says",
        ),
        (
            OF_PPO_WITHOUT_ITERATIONS,
            {"replay": None, "parameters": {"network": "MLP"}},
            "iteration_lag: expected 0 or 1, since its parameters have no unroll_queue, got None",
        ),
    ],
)
def test_a_mistake_that_depends_on_the_job_or_on_chance_is_told(
    tmp_path: Path, change: tuple[str, str], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(PluginProblem, match=said):
        tried(job(tmp_path, change, **settings))


def test_a_checkpoint_names_it_by_its_factory(tmp_path: Path) -> None:
    assert algorithm(job(tmp_path).spec.algorithm.name).metrics == ("q",)
