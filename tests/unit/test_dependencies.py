"""What the package depends on, each with a lower bound and a pin within it, and the licence that it is under."""

import hashlib
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.documents import DOCUMENTS
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = {
    canonicalize_name(pin.name): pin for pin in map(Requirement, (ROOT / "constraints.txt").read_text().splitlines())
}
EXTRAS = {name: [Requirement(text) for text in texts] for name, texts in PROJECT["optional-dependencies"].items()}
NEEDED = [Requirement(text) for text in PROJECT["dependencies"]]


def test_each_has_a_lower_bound_and_a_pin_within_it() -> None:
    others = [wanted for extra in EXTRAS.values() for wanted in extra if wanted.name != "rljob"]
    for wanted in [*NEEDED, *others]:
        (bound,), (pin,) = wanted.specifier, PINS[canonicalize_name(wanted.name)].specifier
        assert (bound.operator, pin.operator, wanted.specifier.contains(pin.version)) == (">=", "==", True), wanted


def test_the_tests_bring_the_roles_and_what_is_small_of_what_else_they_try() -> None:
    small = {"worker", "s3", "gpu", "video", "mujoco", "box2d", "optuna"}
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
    code = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({absent!r}))
import rljob, rljob_operator
for package in (rljob, rljob_operator):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name.rpartition(".")[2] not in ("__main__", "video"):
            importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr


# The licence is named once the same everywhere, and its text is the licence's own.

LICENCE = "Apache-2.0"
TEXT_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""The hash of the text that apache.org gives at /licenses/LICENSE-2.0.txt, and that most packages under this licence carry."""


def test_the_text_is_that_of_the_licence() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == TEXT_SHA256


def test_the_package_and_every_image_name_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == (LICENCE, ["LICENSE"])
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.findall(r'image\.licenses="([^"]*)"', dockerfile) == [LICENCE] * 3
    assert dockerfile.count("image.title=") == 3
    assert "COPY pyproject.toml README.md LICENSE ./" in dockerfile, "the package is not built without it"
    assert "!LICENSE" in (ROOT / ".dockerignore").read_text().splitlines()
