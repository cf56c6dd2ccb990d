"""Variables of a manifest in a run on one machine: as a kubelet would resolve them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rljob.api import load_manifest
from rljob_operator.core.member import Phase, Role
from rljob_operator.local.process import RoleProcess
from rljob_operator.surroundings import own_variables

from tests.support.launch import execute
from tests.support.paths import SUPPORT
from tests.support.waiting import eventually

HERE = {"HOME": "/home/me", "EMPTY": ""}
RESOLVED = [
    ("plain", "plain"),
    ("", ""),
    ("$(HOME)/a", "/home/me/a"),
    ("$(EMPTY)-$(BEFORE)", "-b"),
    ("$(RLJOB_NAME).log", "actor-3.log"),
    ("$(AFTER) $(NOBODYS)", "$(AFTER) $(NOBODYS)"),
    ("$$(HOME)", "$(HOME)"),
    ("$$$(HOME)", "$/home/me"),
    ("$$$$", "$$"),
    ("$HOME ${HOME} $", "$HOME ${HOME} $"),
    ("$(HOME", "$(HOME"),
    ("$($(HOME))", "$($(HOME))"),
    ("$()", "$()"),
    ("$(A)", "$(A)"),
]
"""A value -> what a kubelet makes of it, by the words of the field in core's reference."""


@pytest.mark.parametrize(("written", "resolved"), RESOLVED)
def test_references(written: str, resolved: str) -> None:
    env = [{"name": "BEFORE", "value": "b"}, {"name": "A", "value": written}, {"name": "AFTER", "value": "c"}]
    job = load_manifest(SUPPORT / "pong.yaml", [f"spec.actors.env={json.dumps(env)}"])
    assert own_variables(job, "actor-3", HERE) == {"BEFORE": "b", "A": resolved, "AFTER": "c"}
    assert own_variables(job, "learner", HERE) == own_variables(job, "replay-0", HERE) == {}


@pytest.mark.parametrize(("there", "value"), [({"KEY": "exported"}, "exported"), ({}, "$(KEY)")])
def test_what_a_cluster_takes_from_elsewhere_is_what_is_there(there: dict[str, str], value: str) -> None:
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}, {"name": "A", "value": "$(KEY)"}]
    job = load_manifest(SUPPORT / "pong.yaml", [f"spec.replay.env={json.dumps(env)}"])
    assert own_variables(job, "replay-0", there) == {"A": value}


def test_a_role_has_them_from_its_beginning(tmp_path: Path) -> None:
    """They win over those that every such role has."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "roles").mkdir()
    code = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'], os.environ['A'])"
    process = RoleProcess("actor-0", Role.ACTOR, [sys.executable, "-c", code], tmp_path, execute)
    process.variables = {"OMP_NUM_THREADS": "4", "A": "b"}
    process.start()
    eventually(lambda: process.observe().phase is Phase.EXITED)
    assert (tmp_path / "logs" / "actor-0.log").read_text() == "4 1 b\n"
