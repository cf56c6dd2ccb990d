"""A path in a manifest is meant from the manifest's folder."""

from __future__ import annotations

from pathlib import Path

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


def test_all_else_stays_as_it_is_written(tmp_path: Path) -> None:
    written = job(
        algorithm={"type": "IMPALA", "impala": {"network": "in_the_image.py:make"}}, environment={"id": "my_env:make"}
    )
    assert with_files_beside(written, tmp_path) == written
    assert with_files_beside({"spec": None}, tmp_path) == {"spec": None}
