"""What a user has written is found by its module or file, copied for a run, and what is wrong is told in its author's words."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from rljob.errors import UsageError
from rljob.loading import NotHere, PluginProblem, authors_line, files_loaded, forget_files, loaded, short, told
from rljob.sources import keep_sources, notes_on, sources_of, to_load, user_path, without_places

_numbers = itertools.count()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a name that no module has."""
    return tmp_path / f"outside_{next(_numbers)}.py"


def test_a_function_of_a_file(file: Path) -> None:
    file.write_text("def make(): return 3\n")
    assert loaded(f"{file}:make")() == 3
    assert loaded(f"{file}:make") is loaded(f"{file}:make"), "a file is one module, however often it is asked for"


def test_a_file_imports_what_lies_beside_it(file: Path) -> None:
    beside = file.with_name(f"{file.stem}_beside.py")
    beside.write_text("SEVEN = 7\n")
    file.write_text(f"import {beside.stem}\n\ndef make(): return {beside.stem}.SEVEN\n")
    assert loaded(f"{file}:make")() == 7


def test_a_file_is_loaded_although_another_folder_has_one_of_its_name(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = file.with_name("working")
    working.mkdir()
    (working / file.name).write_text("def make(): return 1\n")
    monkeypatch.syspath_prepend(str(working))
    file.write_text("def make(): return 2\n")
    assert loaded(f"{file}:make")() == 2


def test_a_file_of_a_package_is_imported_with_it_and_all_that_is_loaded_is_named(file: Path) -> None:
    beside = file.with_name("games")
    (beside / "deep").mkdir(parents=True)
    (beside / "deep" / file.name).write_text("from ..rules import SEVEN\n\ndef make(): return SEVEN\n")
    (beside / "rules.py").write_text("SEVEN = 7\n")
    assert loaded(f"{beside}/deep/{file.name}:make")() == 7
    assert (
        files_loaded().items()
        >= {
            f"games/deep/{file.name}": beside / "deep" / file.name,
            "games/rules.py": beside / "rules.py",
        }.items()
    )
    forget_files()
    assert not files_loaded()
    bare = file.with_name("no-name")
    bare.mkdir()
    (bare / file.name).write_text("from .rules import SEVEN\n")
    with pytest.raises(
        PluginProblem, match=r"it belongs to a package, and 'no-name' is no name of one; rename the folder"
    ):
        loaded(f"{bare}/{file.name}:make")


def test_what_a_program_defines_itself_is_refused_with_what_to_do() -> None:
    with pytest.raises(PluginProblem, match=r"no callable 'mine'; the processes of a run can't import .* env\.py:make"):
        loaded("__main__:mine")


def test_a_function_of_an_installed_module_and_of_a_class() -> None:
    assert loaded("json:loads")("3") == 3
    assert loaded("json:JSONDecoder.decode") is not None


def test_a_file_that_is_not_where_it_was_may_be_a_module(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("def make(): return 4\n")
    monkeypatch.syspath_prepend(str(file.parent))
    assert loaded(f"/not/there/{file.name}:make")() == 4


def test_what_is_not_here_is_told_apart_from_what_is_wrong(file: Path) -> None:
    for place, said in (
        (file, "there is no such file, and no module"),
        ("not_installed.a", "No module named 'not_installed'"),
    ):
        with pytest.raises(NotHere, match=said):
            loaded(f"{place}:make")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "x = 1\nimport not_there_at_all\n",
            r"outside_\d+\.py:2, in <module>: ModuleNotFoundError: .*not_there_at_all",
        ),
        ("def f():\n    return [\n", r"outside_\d+\.py:2: SyntaxError: "),
        ("def helper():\n    raise KeyError('x')\nhelper()\n", r"outside_\d+\.py:2, in helper: KeyError: 'x'"),
    ],
)
def test_an_import_that_fails_names_the_authors_line(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(PluginProblem, match=said) as caught:
        loaded(f"{file}:make")
    assert not isinstance(caught.value, NotHere)


@pytest.mark.parametrize(
    ("name", "function", "said"),
    [
        (None, "mak", r"has no callable 'mak'; did you mean make\?"),
        ("json.py", "make", r"the name 'json' is taken by .*json.*; rename the file"),
        ("my-algorithm.py", "make", "'my-algorithm' is no name in Python; rename it"),
    ],
)
def test_a_name_that_is_misspelt_taken_or_can_be_none(file: Path, name: str | None, function: str, said: str) -> None:
    named = file.with_name(name or file.name)
    named.write_text("def make(): ...\n")
    with pytest.raises(PluginProblem, match=said):
        loaded(f"{named}:{function}")


def test_the_line_of_an_error_that_came_through_a_users_code(file: Path) -> None:
    file.write_text("import json\n\ndef make():\n    return json.loads('{')\n")
    with pytest.raises(ValueError, match="Expecting property name") as theirs:
        loaded(f"{file}:make")()
    assert authors_line(theirs.value) == f"{file.name}:4, in make: "
    assert authors_line(ValueError("ours")) == ""


def test_a_path_says_where_a_file_is_and_not_what_it_is() -> None:
    named = [short(place) for place in ("/home/me/plugins/qr_dqn.py:make", "my_pkg.algorithms:make")]
    assert named == ["qr_dqn.py:make", "my_pkg.algorithms:make"]


def test_another_process_finds_the_file_by_its_name(file: Path) -> None:
    """As the workers of ``backend: Async`` do, which are told ``sys.path`` and get functions by their modules' names."""
    file.write_text("def make(): return 5\n")
    program = (
        "import multiprocessing\nfrom rljob.loading import loaded\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.apply(loaded({str(file) + ':make'!r})))\n"
    )
    script = file.with_name("program.py")
    script.write_text(program)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "5", done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotImplementedError(), "NotImplementedError"),
        (NotImplementedError("NotImplementedError"), "NotImplementedError"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("caf\udce9: \x1b[31mé"), r"ValueError: caf\udce9: \x1b[31mé"),
    ],
)
def test_an_error_without_a_text_is_named_once(error: Exception, said: str) -> None:
    assert told(error) == said


def test_a_run_keeps_its_code_and_tells_of_edits_and_of_what_is_gone(tmp_path: Path) -> None:
    project, moved, run = tmp_path / "project", tmp_path / "moved", tmp_path / "run"
    (project / "games").mkdir(parents=True)
    files = {name: project / name for name in ("env.py", "games/env.py", "policy.safetensors")}
    for name, path in files.items():
        path.write_text(f"# {name}\n")
    assert keep_sources(run, files) == notes_on(run) == []
    assert {each.name: (each.place, each.copy.read_text()) for each in sources_of(run)} == {
        name: (path, f"# {name}\n") for name, path in files.items()
    }
    digest = sources_of(run)[0].digest
    named = [f"{project}/{name}" for name in ("env.py:make", "games/env.py:make", "policy.safetensors")]
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
        f"env.py, games/env.py, policy.safetensors: {project}/env.py is not where the run found it any more; its copy is used"
    ]
    assert [to_load(name, run) for name in named] == [name.replace(str(project), f"{run}/code") for name in named]
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
