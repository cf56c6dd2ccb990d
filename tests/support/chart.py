"""The chart as Helm sees it: rendered to objects, or refused with words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT

CHART = ROOT / "charts" / "rljob-operator"
RELEASE, NAMESPACE = "rl", "rl-system"
KUBERNETES = "1.33.0"
"""What is rendered for, as no cluster is asked: without it, each Helm takes the one of its own day."""
Object = dict[str, Any]


def find_program(name: str) -> str | None:
    """Where a program is: on the PATH, or beside those of the API server."""
    return shutil.which(name) or shutil.which(name, path=os.environ.get("KUBEBUILDER_ASSETS", ""))


class HelmRefused(Exception):
    """``str()`` is what Helm said."""

    def names(self, place: str) -> bool:
        """Whether it names a place of the values such as ``/image/tag``, as Helm 4 writes it; Helm 3 writes ``image.tag``."""
        return f"at '{place}" in str(self) or f"- {place[1:].replace('/', '.')}" in str(self)


class Chart:
    """One chart; ``home`` keeps what Helm remembers away from the user's own."""

    def __init__(self, helm: str, home: Path, folder: Path = CHART) -> None:
        self.helm, self._home, self.folder = helm, home, folder

    def of(self, folder: Path) -> Chart:
        """Another chart for the same Helm."""
        return Chart(self.helm, self._home, folder)

    def run(self, *words: str, values: Mapping[str, Any] | None = None) -> str:
        """What Helm prints; ``values`` are given as a file is. Raises `HelmRefused`."""
        homes = {f"HELM_{kind}_HOME": str(self._home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        given = () if values is None else ("--values=-",)
        done = subprocess.run(
            [self.helm, *words, *given], input=json.dumps(values or {}), env={**os.environ, **homes},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if done.returncode:
            raise HelmRefused(done.stderr)
        return done.stdout

    def render(self, values: Mapping[str, Any] | None = None, *words: str) -> list[Object]:
        """The objects that it makes, hooks among them. Raises `HelmRefused`."""
        given = (f"--namespace={NAMESPACE}", f"--kube-version={KUBERNETES}", *words)
        text = self.run("template", RELEASE, str(self.folder), *given, values=values or {})
        return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def only(objects: Sequence[Object], kind: str, name: str = "") -> Object:
    """The one object of this kind and name."""
    (found,) = [each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return found


def at(document: Any, path: str) -> Any:
    """What lies at a path such as ``spec.template.spec.containers.0.image``; None where there is nothing."""
    for step in path.split("."):
        step = step.replace("\\", ".")
        if isinstance(document, list):
            document = document[int(step)] if int(step) < len(document) else None
        elif isinstance(document, Mapping):
            document = document.get(step)
        else:
            return None
    return document


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """The chart of this tree."""
    helm = find_program("helm")
    if helm is None:
        pytest.skip("helm is not on the PATH: version 3.8 or newer renders the chart (docs/testing-on-kubernetes.md)")
    return Chart(helm, tmp_path_factory.mktemp("helm"))
