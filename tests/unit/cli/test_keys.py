"""``rljob keys``: a file a role with that role's secret alone, private, and never over an older one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from rljob.api.exit_codes import EXIT_INVALID
from rljob.cli.app import app
from rljob.wire.keyfile import ROLES, load_keys
from rljob.wire.security import SecurityProblem
from typer.testing import CliRunner


def test_each_role_gets_its_own_secret_and_the_same_peers(tmp_path: Path) -> None:
    folder = tmp_path / "pong"
    result = CliRunner().invoke(app, ["keys", str(folder)])
    assert result.exit_code == 0, result.output
    assert result.output.split() == [str(folder / f"{role}.json") for role in ROLES]
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{role}.json" for role in ROLES)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    loaded = [load_keys(folder / f"{role}.json", role) for role in ROLES]
    assert all(keys.public == loaded[0].public for keys in loaded)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    with pytest.raises(SecurityProblem, match="no secret key for 'learner'"):
        load_keys(folder / "actor.json", "learner")
    assert [path.name for path in tmp_path.iterdir()] == ["pong"], "nothing else is left behind"


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_keys_are_never_replaced(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "keys"
    if kind == "folder":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    result = CliRunner().invoke(app, ["keys", str(target)])
    assert result.exit_code == EXIT_INVALID
    assert "exists already" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_a_parent_that_is_missing_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["keys", str(tmp_path / "a" / "b")])
    assert result.exit_code == EXIT_INVALID
    assert result.stderr == f"rljob: {tmp_path / 'a' / 'b'}: there is no folder {tmp_path / 'a'}; create it first\n"
