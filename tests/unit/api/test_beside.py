"""A path in a manifest is meant from the manifest's folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.api import parse_job, with_files_beside
from rljob.api.job import API_VERSION, KIND


def job(**spec: object) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}, "spec": spec}


def test_files_that_are_there_get_their_whole_path(tmp_path: Path) -> None:
    folder = tmp_path / "my plugins"
    folder.mkdir()
    for name in ("qr.py", "game.py"):
        (folder / name).touch()
    written = job(
        algorithm={"type": "Custom", "custom": {"factory": "my plugins/qr.py:make"}},
        environment={"id": "my plugins/game.py:make", "register": ["my plugins/game.py:register", "package:register"]},
        evaluator={"environment": {"id": "my plugins/game.py:hard"}},
    )
    found = with_files_beside(written, tmp_path)
    checked = parse_job(found)
    assert checked.spec.algorithm.name == f"{folder}/qr.py:make"
    assert checked.spec.environment.id == f"{folder}/game.py:make"
    assert checked.spec.environment.register_functions == [f"{folder}/game.py:register", "package:register"]
    assert checked.spec.judged_environment.id == f"{folder}/game.py:hard"
    assert written["spec"]["environment"]["id"] == "my plugins/game.py:make"  # type: ignore[index]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("~/game.py:make", "{home}/game.py:make"),
        ("~/gone.py:make", "{home}/gone.py:make"),
        ("linked/game.py:make", "{home}/linked/game.py:make"),
        ("linked/../game.py:make", "{home}/game.py:make"),
        ("file://~/run", "file://{home}/run"),
        ("~nobody-has-this-name/game.py:make", "~nobody-has-this-name/game.py:make"),
        ("game.py", "game.py"),
    ],
)
def test_a_home_is_expanded_and_links_are_kept(
    written: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    for folder in (tmp_path, tmp_path / "real"):
        (folder / "game.py").touch()
    found = with_files_beside({"spec": {"a": written, "kwargs": {"map": "game.py:make"}}}, tmp_path)
    assert found["spec"] == {"a": meant.format(home=tmp_path), "kwargs": {"map": "game.py:make"}}


def test_all_else_stays_as_it_is_written(tmp_path: Path) -> None:
    written = job(
        algorithm={"type": "IMPALA", "impala": {"network": "in_the_image.py:make"}}, environment={"id": "my_env:make"}
    )
    assert with_files_beside(written, tmp_path) == written
    assert with_files_beside({"spec": None}, tmp_path) == {"spec": None}
