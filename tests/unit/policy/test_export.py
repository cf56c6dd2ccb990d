"""``rljob export``: the files act as the policy does, where there is no rljob either, and what acts otherwise is not kept."""

import copy
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rljob
import safetensors.torch
from rljob.errors import UsageError
from rljob.policy import export as exporting
from rljob.policy.export import ExportProblem, export

from tests.support.command_line import printed, refused
from tests.support.untrained import untrained

MANIFESTS = {
    "vector": ("cartpole-apex.yaml",),
    "image": ("pong-vtrace.yaml",),
    "nature": ("pong-apex-nature.yaml",),
    "recurrent": ("cartpole-impala.yaml", "spec.algorithm.recurrent=LSTM"),
    "recurrent PPO": ("cartpole-ppo.yaml", "spec.algorithm.recurrent=LSTM"),
    "continuous": ("pendulum-ppo.yaml", "spec.algorithm.normalizeObservations=true"),
    "squashed": ("pendulum-sac.yaml",),
}
FAILS_AT_TEN = """
import gymnasium

class FailsAtTen(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 10:
            raise OSError("no licence")
        return self.env.step(action)

def make():
    return FailsAtTen(gymnasium.make("CartPole-v1"))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: untrained(tmp_path_factory.mktemp("run"), *of) for name, of in MANIFESTS.items()}


def test_torchscript_acts_the_same_where_there_is_no_rljob(runs: dict[str, Path], tmp_path: Path) -> None:
    """On noise, in a batch of a size that the file was not made with."""
    expected, random = [], np.random.default_rng(5)
    for name, run in runs.items():
        policy = rljob.load_policy(run)
        written = export(policy, "torchscript", tmp_path / name)
        assert written.difference < 1e-5, name
        observations = (100 * random.random((9, *policy.observation_shape))).astype(policy.observation_dtype)
        memory = random.normal(size=(9, 2, policy.memory_units)).astype(np.float32)
        np.savez(tmp_path / name / "given.npz", observations, *[memory][: policy.memory_units])
        expected.append((written.file, policy.act(observations, memory=memory)))
    code = """
import pathlib, sys
sys.modules["rljob"] = None
import numpy, torch
for file in map(pathlib.Path, sys.argv[1:]):
    inputs = map(torch.from_numpy, numpy.load(file.parent / "given.npz").values())
    print(torch.jit.load(file)(*inputs)[0].tolist())
"""
    command = [sys.executable, "-c", code, *(file for file, _ in expected)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for (file, actions), said in zip(expected, done.stdout.splitlines(), strict=True):
        np.testing.assert_allclose(json.loads(said), actions, rtol=1e-5, atol=1e-6, err_msg=file.parent.name)


@pytest.mark.parametrize("name", MANIFESTS)
def test_onnx_acts_the_same(runs: dict[str, Path], name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra [onnx]")
    pytest.importorskip("onnxscript", reason="needs the extra [onnx]")
    policy = rljob.load_policy(runs[name])
    written = export(policy, "onnx", tmp_path)
    assert written.difference < 1e-4
    assert (
        onnxruntime.InferenceSession(str(written.file), providers=["CPUExecutionProvider"]).get_inputs()[0].shape
        == ["N", *policy.observation_shape]
        == json.loads(written.about.read_text())["observations"]["inputs"][0]["shape"]
    )


def test_safetensors_holds_the_weights_under_their_names(runs: dict[str, Path], tmp_path: Path) -> None:
    policy = rljob.load_policy(runs["image"])
    tensors = safetensors.torch.load_file(str(export(policy, "safetensors", tmp_path).file))
    state = policy.stored.module.state_dict()
    assert tensors.keys() == state.keys()
    assert all(tensors[name].equal(state[name]) for name in state)


def test_the_command_says_what_it_wrote_and_how_it_was_checked(runs: dict[str, Path], tmp_path: Path) -> None:
    here = tmp_path / "made" / "here"
    said = printed("export", runs["image"], "--to", here).splitlines()
    for line, pattern in zip(
        said,
        (
            rf"{here}/policy\.pt: torchscript, .*of IMPALA on ALE/Pong-v5: uint8 \[N, 4, 42, 42\] -> 3 actions",
            rf"{here}/policy\.pt\.json: .*",
            r"checked: the same action for each of 64 observations \(ALE/Pong-v5\); .*",
        ),
        strict=True,
    ):
        assert re.fullmatch(pattern, line)
    facts = json.loads((here / "policy.pt.json").read_text())
    assert facts["sha256"] == hashlib.sha256((here / "policy.pt").read_bytes()).hexdigest()
    (seen,) = facts["observations"]["inputs"]
    assert (seen["shape"], seen["dtype"]) == (["N", 4, 42, 42], "uint8")
    assert [leaf["role"] for leaf in facts["observations"]["leaves"]] == ["image"]
    assert facts["actions"] == {"choices": [3], "ofTheEnvironment": [0, 2, 3]}
    assert (facts["environment"]["atari"]["frameSkip"], facts["checked"]["observations"]) == (4, 64)
    assert sorted(path.name for path in here.iterdir()) == ["policy.pt", "policy.pt.json"]


def test_a_run_folder_gets_a_folder_of_its_own_and_a_checkpoint_needs_one_named(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    checkpoint = next((runs["vector"] / "checkpoints").iterdir())
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / checkpoint.name).symlink_to(checkpoint)
    (run / "job.yaml").write_text((Path("manifests") / "examples" / "cartpole-apex.yaml").read_text())
    assert printed("export", run, "--format", "safetensors")
    assert (run / "export" / "policy.safetensors").is_file()
    said = refused("export", checkpoint)
    assert ("is no run folder to write export/ to; name the folder to write to" in said, said.count("\n")) == (True, 1)


def test_what_acts_otherwise_is_not_kept(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mirrored(policy: rljob.Policy, file: Path, samples: exporting.Samples) -> exporting.Exported:
        file.write_bytes(b"wrong")
        return lambda given: (1 - policy.act(*given), policy.preferences(*given, policy.new_memory(len(given[0])))[0])

    policy = rljob.load_policy(runs["vector"])
    monkeypatch.setattr(exporting, "_WRITERS", {"torchscript": mirrored})
    with pytest.raises(ExportProblem, match="nothing was kept: for 64 of 64 observations of CartPole-v1"):
        export(policy, "torchscript", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_its_packages_onnx_is_refused_in_a_sentence(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = rljob.load_policy(runs["vector"])
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs onnx, onnxruntime, onnxscript, .* pip install 'rljob\[onnx\]'$"):
        export(policy, "onnx", tmp_path)


def test_where_the_environment_cannot_be_made_numbers_are_drawn(runs: dict[str, Path], tmp_path: Path) -> None:
    policy = rljob.load_policy(runs["image"])
    unknown = copy.copy(policy.stored.spec)
    object.__setattr__(unknown, "id", "gone_module:factory")
    policy.stored = policy.stored._replace(spec=unknown)
    written = export(policy, "torchscript", tmp_path)
    assert written.origin.startswith("random numbers, as environment 'gone_module:factory'")
    assert written.compared == 64


def test_where_the_environment_fails_numbers_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "fails_at_ten.py"
    file.write_text(FAILS_AT_TEN)
    an_end = "spec.successPolicy.rawFrames=1000000"
    run = untrained(tmp_path / "run", "cartpole-apex.yaml", f"spec.environment.id={file}:make", an_end)
    written = export(rljob.load_policy(run), "torchscript", tmp_path / "exported")
    where = f"failed in step(): {file.name}:10, in step: OSError: no licence"
    assert written.origin.startswith(f"random numbers, as environment 0 of '{file.name}:make' {where}")
    assert written.compared == 64
