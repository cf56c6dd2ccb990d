"""Texts that are no manifest at all, each refused with its line and column; and paths in one, meant from its folder.

Every rule of the manifest, broken once, names the place, shows the value and says what is allowed; so do drawn documents.
"""

import contextlib
import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, given as drawn, settings, strategies as st
from rljob.api import ManifestError, RLJob, load_manifest, parse_job, with_files_beside
from rljob.api.document import MAX_BYTES, parse_document
from rljob.api.job import Metadata, RLJobSpec
from rljob.api.mutability import places as places_of
from rljob.api.structure import CALLED_HERE, MOVED

from tests.support.jobs import manifest_of
from tests.unit.api.bad_manifests import BASE, CASES, CLUSTER, IMPALA, PRESET, document, effective, in_force

GOOD = """\
apiVersion: rljob.dev/v1alpha1
kind: RLJob
metadata: {name: a}
spec:
  algorithm: {type: ApeXDQN}
  environment: {id: A-v1}
"""

BOMB = "\n".join(["a0: &a0 [x]", *(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]" for i in range(7))]).encode()
"""Eight short lines that unfold to ten million values."""

TEXTS: list[tuple[str, bytes, str, str]] = [
    ("empty", b"", "m.yaml", "is empty"),
    ("only a comment", b"# nothing\n", "m.yaml", "is empty"),
    ("null", b"~\n", "m.yaml", "is empty"),
    ("a list", b"- 1\n- 2\n", "m.yaml:1:1", "is a list; allowed: a mapping with apiVersion"),
    ("a scalar", b"hello\n", "m.yaml:1:1", "is a single value"),
    ("two documents", f"{GOOD}---\n{GOOD}".encode(), "m.yaml:8:1", "has 2 documents; allowed: one"),
    ("broken YAML", b"a: 1\nb: [1, 2\nc: 3\n", "m.yaml:3:", "not valid YAML"),
    ("a tab", b"a:\n\tb: 1\n", "m.yaml:2:1", "a tab; indent with spaces"),
    ("not UTF-8", b"a: 1\nb: \xff\n", "m.yaml:2:4", "byte 0xff is not UTF-8"),
    ("duplicate key", b"a: 1\nb:\n  c: 1\n  c: 2\n", "m.yaml:4:3", "each key once; this one is also in line 3"),
    ("numeric key", b"1: a\n", "m.yaml:1:1", "allowed as a key: a string"),
    ("list as key", b"? [a]\n: 1\n", "m.yaml:1:3", "allowed as a key: a string"),
    ("python tag", b"a: !!python/object/apply:os.system [ls]\n", "m.yaml:1:4", "leave the tag out"),
    ("itself through an alias", b"a: &x [*x]\n", "m.yaml.a[0]", "it may contain itself"),
    ("a bomb", BOMB, "m.yaml.a", "allowed: up to 100,000 values"),
    ("infinity", b"a: 1\nb: -.inf\n", "m.yaml:2:4", "allowed: a finite number"),
    ("deep", b"[" * 5000 + b"]" * 5000, "m.yaml", "nested too deeply"),
    ("a control character", b"a: 1\nb: \x07\n", "m.yaml:2:4", "not valid YAML: the character U+0007; delete it"),
    ("blanks of a page", "a: 1\nb:\u00a01\n".encode(), "m.yaml:3:1", "there is U+00A0 (no-break space)"),
    ("too long", b"#" * (MAX_BYTES + 1), "m.yaml", "allowed: up to 524,288"),
]


@pytest.mark.parametrize(("text", "place", "words"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS])
def test_bad_text(text: bytes, place: str, words: str) -> None:
    with pytest.raises(ManifestError, match=f"(?s)^{re.escape(place)}.*{re.escape(words)}"):
        parse_document(text, "m.yaml")


@pytest.mark.parametrize(
    "text", [b'{\n\t"a":\t1\n}', b"# Helm's\n---\n# a\n---\na: 1\n", b"a: 1\n---\n"], ids=["JSON", "before", "behind"]
)
def test_text_that_kubectl_takes(text: bytes) -> None:
    assert parse_document(text, "m.yaml") == {"a": 1}


def test_all_duplicate_keys_are_named() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_document(b"a: 1\na: 2\nb: {c: 1, c: 2}\n", "m.yaml")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("line", "path", "words"),
    [
        ("apiVersion: rljob.dev/v1", "apiVersion", "'rljob.dev/v1'; allowed: rljob.dev/v1alpha1"),
        ("kind: Job", "kind", "'Job'; allowed: RLJob"),
        ("kind: RLJ\u043eb", "kind", "with U+043E (cyrillic small letter o); allowed: RLJob"),
        ("metadata: {}", "metadata.name", "required"),
        ("spec:", "spec", "required"),
    ],
)
def test_wrong_heads(tmp_path: Path, line: str, path: str, words: str) -> None:
    lines = [line if known.startswith(line.split(":")[0]) else known for known in GOOD.splitlines()]
    if line == "spec:":
        lines = lines[: lines.index(line) + 1]
    (tmp_path / "m.yaml").write_text("\n".join(lines))
    with pytest.raises(ManifestError, match=re.escape(words)) as caught:
        load_manifest(tmp_path / "m.yaml")
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.fixture
def named(tmp_path: Path) -> Callable[[str], Metadata]:
    """The metadata of a manifest in which they are written so."""

    def loaded(metadata: str) -> Metadata:
        (tmp_path / "m.yaml").write_text(GOOD.replace("name: a", metadata))
        return load_manifest(tmp_path / "m.yaml").metadata

    return loaded


def test_a_name_that_a_server_would_make(named: Callable[[str], Metadata]) -> None:
    names = {named("generateName: sweep-, finalizers: [a/b]").name for _ in range(9)}
    assert (len(names), {name[:6] for name in names}) == (9, {"sweep-"})
    assert named("name: a, generateName: sweep-").name == "a"
    with pytest.raises(ManifestError, match="a letter first"):
        named("generateName: 7")
    long = named(f"generateName: {'a' * 40}, name: '', namespace: ''")
    assert (len(long.name), long.namespace) == (45, "default"), "as long as a server's"


def test_what_a_server_has_added_to_a_stored_object_is_passed_over(named: Callable[[str], Metadata]) -> None:
    of_a_server = "uid: x, managedFields: [{manager: kubectl}], ownerReferences: [], ofALaterRelease: {a: 1}"
    assert named(f"name: a, {of_a_server}").name == "a"
    with pytest.raises(ManifestError, match=r"ofALaterRelease: got .*unknown field"):
        named("name: a, ofALaterRelease: {a: 1}")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ManifestError, match=f"cannot be read: {why}"):
            load_manifest(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_a_problem(text: bytes) -> None:
    with contextlib.suppress(ManifestError):  # nothing else may come out
        assert isinstance(parse_document(text, "m.yaml"), dict)


# A path in a manifest is meant from the manifest's folder.


def job(**spec: Any) -> dict[str, Any]:
    return manifest_of(spec)


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
    spec = parse_job(with_files_beside(written, tmp_path)).spec
    named = [spec.algorithm.name, spec.environment.id, spec.judged_environment.id, *spec.environment.register_functions]
    there = ["qr.py:make", "game.py:make", "game.py:hard", "game.py:register"]
    assert named == [*(f"{folder}/{each}" for each in there), "package:register"]
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
    written = job(algorithm={"type": "IMPALA", "network": "in_the_image.py:make"}, environment={"id": "my_env:make"})
    assert with_files_beside(written, tmp_path) == written
    assert with_files_beside({"spec": None}, tmp_path) == {"spec": None}


@pytest.mark.parametrize(
    ("base", "overrides", "path", "words"), CASES, ids=[f"{case[0].stem} {' '.join(case[1])[:70]}" for case in CASES]
)
def test_a_broken_rule_is_named(base: Path, overrides: list[str], path: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(base, overrides)
    problems = {problem.path: str(problem) for problem in caught.value.problems}
    assert path in problems, str(caught.value)
    assert [word for word in words if word not in problems[path]] == []
    assert len(problems) == 1, "one mistake makes one problem:\n" + str(caught.value)


def test_other_names_lead_to_fields_that_there_are() -> None:
    """Those of other libraries, and those of earlier manifests."""
    fields = {each.path for each in places_of(RLJobSpec, whole_sections=False)} | {"algorithm", "successPolicy"}
    free = tuple(f"{path}." for path in fields if path.endswith("podTemplate"))
    instead = [words for words in MOVED.values() if not words.startswith(("nothing", "*"))]
    names = [*CALLED_HERE.values(), *instead]
    assert [words for words in names if words not in fields and not words.startswith(free)] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {
            "spec.actors.replicas": "-1",
            "spec.nonsense": "1",
            "spec.algorithm.gamma": "2",
            "spec.environment.id": "two words",
        },
        {
            "spec.algorithm.learningRateFinal": "0.5",
            "spec.replay.rateLimiter.errorBuffer": "1",
            "spec.checkpoint.storage": "{}",
        },
    ],
    ids=["fields", "rules between fields that are right"],
)
def test_every_problem_at_once(wrong: dict[str, str]) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(BASE, [f"{path}={value}" for path, value in wrong.items()])
    assert {problem.path for problem in caught.value.problems} == wrong.keys()
    assert str(caught.value).count("\n") == len(wrong) - 1


# Whatever a document holds, checking it gives a job or problems with a place, never another error.

DOCUMENTS = [document(CLUSTER), effective(CLUSTER), effective(IMPALA), document(PRESET)]

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.integers(10**20, 10**30) | st.floats() | st.text(max_size=20)
    | st.sampled_from(["", "nan", "-1", "0", "1e999", "{}", "{allowed}", "None", "\ud800", "x" * 5000])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)


def places(node: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document, the root left out."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for key, child in items for place in [(*here, key), *places(child, (*here, key))]]


def replaced(start: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with ``value`` at ``place``, if the place is still there."""
    result = copy.deepcopy(start)
    node: Any = result
    with contextlib.suppress(KeyError, IndexError, TypeError):
        for part in place[:-1]:
            node = node[part]
        node[place[-1]] = value
    return result


@settings(max_examples=300)
@drawn(st.data(), st.sampled_from(DOCUMENTS))
def test_mutated_manifests(data: st.DataObject, given: dict[str, Any]) -> None:
    for place, value in data.draw(st.lists(st.tuples(st.sampled_from(places(given)), VALUES), min_size=1, max_size=4)):
        given = replaced(given, place, value)
    try:
        job = parse_job(given)
    except ManifestError as error:
        for problem in error.problems:
            assert problem.path, str(problem)
            assert re.search("^(?!.*something else).*(allowed|unknown|required)", problem.message, re.DOTALL), str(
                problem
            )
    else:
        assert isinstance(job, RLJob)
        assert parse_job(in_force(job)).spec == job.spec
