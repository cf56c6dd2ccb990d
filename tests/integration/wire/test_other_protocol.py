"""A real role process of a release with another protocol, as a pod of this one's operator starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rljob.api import load_manifest
from rljob.api.exit_codes import EXIT_PROTOCOL
from rljob.wire.version import WIRE_VERSION
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.variables import environment

from tests.support.paths import EXAMPLES

JOB = EXAMPLES / "cartpole-apex.yaml"
NEXT_RELEASE = (
    f"from rljob.wire import version; version.WIRE_VERSION = {WIRE_VERSION + 1}; "
    "from rljob.cli.app import app; app(['worker', *__import__('sys').argv[1:]])"
)


@pytest.mark.parametrize("member", ["replay-0", "learner", "actor-0", "evaluator"])
def test_it_ends_at_once_with_what_it_speaks_and_what_was_wanted(tmp_path: Path, member: str) -> None:
    variables = {
        each["name"]: each["value"]
        for each in environment(Owned(load_manifest(JOB), "uid-1"), member, Settings(image="rl:1"))
    }
    variables |= {"RLJOB_JOB": str(JOB), "RLJOB_RUN_DIR": str(tmp_path), "RLJOB_METRICS_PORT": "0"}
    (tmp_path / "roles").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", NEXT_RELEASE, member.partition("-")[0]],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == EXIT_PROTOCOL
    assert done.stderr.splitlines()[-1].endswith(
        f"speaks protocol {WIRE_VERSION + 1}; the job speaks protocol {WIRE_VERSION}"
    )
