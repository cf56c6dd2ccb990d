"""What `rljob validate` says of plug-ins: what `rljob run` would say on this machine, and no more of what is in an image."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rljob.loading import forget_files
from rljob_operator.local.launch import Launcher

from tests.support.command_line import invoke, printed, refused
from tests.support.documents import block, write_environment, write_example
from tests.support.paths import EXAMPLES


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No run comes as far as its roles, so the process that they would be forked from loads nothing ahead."""
    monkeypatch.setattr(Launcher, "prepare", lambda self: None)
    before = list(sys.path)
    yield
    forget_files()
    sys.path[:] = before


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return write_environment(tmp_path)


def options(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def line_of_validate(manifest: Path, *changes: str) -> str:
    """What validate says of a manifest that it refuses."""
    return refused("validate", manifest, *options(*changes)).removeprefix(f"{manifest}: ")


def same_line(folder: Path, manifest: Path, *changes: str) -> str:
    """What validate says of a manifest and so does run, both with exit code 2."""
    line = line_of_validate(manifest, *changes)
    forget_files()
    assert refused("run", manifest, "--run-dir", folder / "run", *options(*changes)) == f"rljob: {line}"
    assert not (folder / "run").exists()
    return line


CORRIDOR = "  observation: vector float32 [1]\n  action: Discrete int64 [] of 2\n"


def test_a_manifest_whose_environment_is_right(tmp_path: Path, manifest: Path) -> None:
    assert printed("validate", manifest) == f"{manifest}: ok, ApeXDQN on corridor.py:make\n{CORRIDOR}"


def test_int8_of_a_network_that_can_not_be_computed_so_is_refused_before_anything_runs(tmp_path: Path) -> None:
    manifest, int8 = EXAMPLES / "cartpole-impala.yaml", "actors.precision=INT8"
    printed("validate", manifest, "--set", int8)
    line = same_line(tmp_path, manifest, int8, "algorithm.separateCritic=true")
    assert "actors.precision is INT8, but this network can't be computed in int8: that takes" in line
    assert "separateCritic" in line


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            "os._exit(3)",
            "ended by exit code 3 while it was made or within its first steps, twice; what it printed is above\n",
        ),
        ("import rocket_engine", "No module named 'rocket_engine'"),
        (
            "return gymnasium.make('Pendulum-v1')",
            "ApeXDQN learns choices alone, but there are continuous actions",
        ),
    ],
)
def test_an_environment_that_no_run_would_take_is_refused(made: str, said: str, tmp_path: Path, manifest: Path) -> None:
    """It is made in a process of its own, unless that is not wanted."""
    (tmp_path / "corridor.py").write_text(f"import os\nimport gymnasium\ndef make(length=3):\n    {made}\n")
    assert said in refused("validate", manifest)
    printed("validate", manifest, "--no-environment")
    with_image = invoke("validate", manifest, "--set", "spec.image=mine")
    assert with_image.exit_code == (0 if "import" in made else 2), "what is not installed here may be in the image"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "spec.environment.id=corridr.py:make",
            "environment 'corridr.py:make': corridr.py: there is no such file, and no module 'corridr' that can be imported in "
            "its place; one that has moved is found by PYTHONPATH=its folder\n",
        ),
        (
            "spec.environment.kwargs={lenght: 3}",
            "environment 'corridor.py:make': kwargs: the factory has no argument 'lenght'; did you mean 'length'?\n",
        ),
    ],
)
def test_what_is_wrong_with_an_environment_is_said(change: str, said: str, manifest: Path) -> None:
    """All that can be: tests/unit/envs/test_problems.py."""
    manifest.write_text(manifest.read_text().replace("{length: 12}", "{}"))
    assert line_of_validate(manifest, change).endswith(said)


def test_what_is_judged_in_is_checked_too(tmp_path: Path, manifest: Path) -> None:
    where = "spec.evaluator.environment"
    for right in ("maxEpisodeSteps=9", "kwargs={length: 3}"):
        printed("validate", manifest, "--set", f"{where}.{right}")
    said = line_of_validate(manifest, f"{where}={{id: CartPole-v1, kwargs: {{}}}}")
    assert said.startswith("environment 'CartPole-v1' of spec.evaluator.environment has to show and take what")
    for more in ((), ("--no-environment",)):
        said = refused("validate", manifest, *more, "--set", f"{where}.id=corridor.py:mak")
        assert "did you mean make?" in said


def test_what_is_wrong_with_an_environment_is_said_as_run_says_it(tmp_path: Path) -> None:
    """One of them stands for all: a run takes long to start."""
    said = same_line(tmp_path, write_environment(tmp_path), "spec.environment.id=corridor.py:mak")
    assert said.endswith("has no callable 'mak'; did you mean make?\n")


def test_a_missing_file_of_an_algorithm(tmp_path: Path) -> None:
    assert same_line(tmp_path, write_example(tmp_path), "spec.algorithm.custom.factory=soft.py:SoftQ") == (
        "soft.py: there is no such file, and no module 'soft' that can be imported in its place; one that has moved is found by "
        "PYTHONPATH=its folder\n"
    )


def test_what_an_image_has_is_not_looked_for_here(tmp_path: Path) -> None:
    manifest = tmp_path / "cluster.yaml"
    manifest.write_text(block("yaml", "name: soft-q-corridor"))
    result = invoke("validate", manifest)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"{manifest}: ok, soft_q.py:SoftQ on corridor.py:make; its own parameters were not checked: soft_q.py: there is no such "
        "file, and no module 'soft_q' that can be imported in its place; one that has moved is found by PYTHONPATH=its folder; "
        "its environment was not checked: environment 'corridor.py:make': corridor.py: there is no such file, and no module "
        "'corridor' that can be imported in its place; one that has moved is found by PYTHONPATH=its folder\n"
    )
    write_environment(tmp_path)  # what is here is checked all the same
    assert "the factory has no argument 'lenght'" in line_of_validate(manifest, "spec.environment.kwargs={lenght: 3}")


def test_a_module_may_be_installed_where_the_job_runs(tmp_path: Path) -> None:
    said = printed("validate", write_environment(tmp_path), "--set", "spec.environment.id=nowhere.games:make")
    assert "ok, ApeXDQN on nowhere.games:make; its environment was not checked: environment" in said


def test_two_files_of_one_name_in_one_manifest(tmp_path: Path) -> None:
    manifest = write_example(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "soft_q.py").write_text(block("python", "class Corridor("))
    assert same_line(tmp_path, manifest, "spec.environment.id=other/soft_q.py:make") == (
        f"environment 'soft_q.py:make': {tmp_path}/other/soft_q.py: the name 'soft_q' is taken by {tmp_path}/soft_q.py; rename "
        "the file\n"
    )


def test_two_manifests_with_files_of_one_name(tmp_path: Path) -> None:
    manifests = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        manifests.append(write_environment(tmp_path / name))
    (tmp_path / "two" / "corridor.py").write_text(block("python", "class Corridor(").replace("length", "cells"))
    result = invoke("validate", *manifests)
    assert (result.exit_code, result.stdout) == (2, f"{manifests[0]}: ok, ApeXDQN on corridor.py:make\n{CORRIDOR}")
    assert "the factory has no argument 'length'; it has cells" in result.stderr


REGISTERS = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Short(CartPoleEnv):
    pass


gymnasium.register("Short-v0", Short, max_episode_steps=20)
"""


def test_an_id_that_nothing_registers_is_a_mistake_unless_the_jobs_image_may(tmp_path: Path, manifest: Path) -> None:
    line = line_of_validate(manifest, "spec.environment={id: CartPool-v1}")
    assert [word for word in ("is not known", "did you mean CartPole-v1") if word not in line] == []
    (tmp_path / "registers.py").write_text(REGISTERS)
    line = same_line(tmp_path, manifest, "spec.environment={id: registers.py:Shrt-v0}")
    assert "did you mean registers.py:Short-v0?" in line
    forget_files()
    in_image = options("spec.environment={id: Maze-v3}", "spec.image=registry.example.com/team/maze:1")
    said = printed("validate", manifest, *in_image)
    assert "its environment was not checked: environment 'Maze-v3' is not known" in said


def test_an_id_with_the_file_that_registers_it(tmp_path: Path, manifest: Path) -> None:
    (tmp_path / "registers.py").write_text(REGISTERS)
    assert printed("validate", manifest, *options("spec.environment={id: registers.py:Short-v0}")) == (
        f"{manifest}: ok, ApeXDQN on registers.py:Short-v0\n  observation: vector float32 [4]\n"
        "  action: Discrete int64 [] of 2\n"
    )
