"""The licence is named once the same everywhere, and its text is the licence's own."""

from __future__ import annotations

import hashlib
import re
import tomllib

from tests.support.paths import ROOT

LICENCE = "Apache-2.0"
TEXT_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""The hash of the text that apache.org gives at /licenses/LICENSE-2.0.txt, and that most packages under this licence carry."""


def test_the_text_is_that_of_the_licence() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == TEXT_SHA256


def test_the_package_and_every_image_name_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == (LICENCE, ["LICENSE"])
    dockerfile = (ROOT / "Dockerfile").read_text()
    titles = re.findall(r"image\.title=", dockerfile)
    assert re.findall(r'image\.licenses="([^"]*)"', dockerfile) == [LICENCE] * len(titles)
    assert len(titles) == 3
    assert "COPY pyproject.toml README.md LICENSE ./" in dockerfile, "the package is not built without it"
    assert "!LICENSE" in (ROOT / ".dockerignore").read_text().splitlines()
