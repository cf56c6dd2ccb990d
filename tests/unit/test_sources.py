"""A run's copies of its user's code: what a file is, where it is loaded from, and what is said where that is not as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.errors import UsageError
from rljob.sources import keep_sources, notes_on, sources_of, to_load, user_path, without_places


def test_a_run_keeps_its_code_and_tells_of_edits_and_of_what_is_gone(tmp_path: Path) -> None:
    project, moved, run = tmp_path / "project", tmp_path / "moved", tmp_path / "run"
    (project / "games").mkdir(parents=True)
    files = {name: project / name for name in ("env.py", "games/env.py")}
    for name, path in files.items():
        path.write_text(f"# {name}\n")
    assert keep_sources(run, files) == notes_on(run) == []
    assert {each.name: (each.place, each.copy.read_text()) for each in sources_of(run)} == {
        name: (path, f"# {name}\n") for name, path in files.items()
    }
    digest = sources_of(run)[0].digest
    named = [f"{path}:make" for path in files.values()]
    assert [to_load(name, run) for name in named] == named

    files["env.py"].write_text("# edited\n")
    assert [note.partition(" (")[0] for note in notes_on(run)] == [
        f"env.py: {project}/env.py is not as the run was last started with it; it is used as it is now"
    ]
    assert keep_sources(run, files) != []
    assert notes_on(run) == []
    assert sources_of(run)[0].digest != digest

    project.rename(moved)
    assert [note.partition(" (")[0] for note in notes_on(run)] == [
        f"env.py, games/env.py: {project}/env.py is not where the run found it any more; its copy is used"
    ]
    assert [to_load(name, run) for name in named] == [f"{run}/code/env.py:make", f"{run}/code/games/env.py:make"]
    assert keep_sources(run, {"env.py": run / "code" / "env.py"}) != []
    assert sources_of(run)[0].place == project / "env.py"
    assert keep_sources(run, {"env.py": moved / "env.py"}) == [], "it was told which file is meant now"
    assert to_load(f"{tmp_path}/another.py:make", run) == f"{tmp_path}/another.py:make"


def test_what_a_file_is_says_not_where_it_is() -> None:
    spec = {"id": "/a/env.py:make", "register": ["/a/b.py:c", "pkg:d"], "kwargs": {"map": "/a/map.py:x"}, "n": 1}
    assert without_places(spec) == {**spec, "id": "env.py:make", "register": ["b.py:c", "pkg:d"]}


def test_a_path_of_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/a b") == tmp_path / "a b"
    assert user_path("./~") == Path("./~")
    with pytest.raises(UsageError, match="there is no user nobody-has-this-name here"):
        user_path("~nobody-has-this-name/a")
