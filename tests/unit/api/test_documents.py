"""Texts that are no manifest at all, each refused with its line and column."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rljob.api import ManifestError, load_manifest
from rljob.api.document import MAX_BYTES, parse_document

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
    ("itself through an alias", b"a: &x [*x]\n", "m.yaml:1:", "contains itself"),
    ("a bomb", BOMB, "m.yaml", "unfolds to more than 100,000"),
    ("infinity", b"a: 1\nb: -.inf\n", "m.yaml:2:4", "allowed: a finite number"),
    ("deep", b"[" * 5000 + b"]" * 5000, "m.yaml", "nested too deeply"),
    ("a control character", b"a: \x07\n", "m.yaml", "not valid YAML"),
    ("too long", b"#" * (MAX_BYTES + 1), "m.yaml", "allowed: up to 524,288"),
]


@pytest.mark.parametrize(("text", "place", "words"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS])
def test_bad_text(text: bytes, place: str, words: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_document(text, "m.yaml")
    assert str(caught.value).startswith(place), str(caught.value)
    assert words in str(caught.value)


def test_all_duplicate_keys_are_named() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_document(b"a: 1\na: 2\nb: {c: 1, c: 2}\n", "m.yaml")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("line", "path", "words"),
    [
        ("apiVersion: rljob.dev/v1", "apiVersion", "'rljob.dev/v1'; allowed: rljob.dev/v1alpha1"),
        ("kind: Job", "kind", "'Job'; allowed: RLJob"),
        ("metadata: {}", "metadata.name", "required"),
        ("spec:", "spec", "required"),
    ],
)
def test_wrong_heads(tmp_path: Path, line: str, path: str, words: str) -> None:
    lines = [line if known.startswith(line.split(":")[0]) else known for known in GOOD.splitlines()]
    if line == "spec:":
        lines = lines[: lines.index(line) + 1]
    file = tmp_path / "m.yaml"
    file.write_text("\n".join(lines))
    with pytest.raises(ManifestError) as caught:
        load_manifest(file)
    assert [problem.path for problem in caught.value.problems] == [path]
    assert words in str(caught.value)


def test_a_name_that_a_server_would_make(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(GOOD.replace("name: a", "generateName: sweep-, finalizers: [a/b]"))
    names = {load_manifest(file).metadata.name for _ in range(9)}
    assert len(names) == 9
    assert all(name.startswith("sweep-") for name in names)
    file.write_text(GOOD.replace("name: a", "name: a, generateName: sweep-"))
    assert load_manifest(file).metadata.name == "a"
    file.write_text(GOOD.replace("name: a", "generateName: 7"))
    with pytest.raises(ManifestError, match="a letter first"):
        load_manifest(file)


def test_a_made_name_is_as_long_as_a_servers(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(GOOD.replace("name: a", f"generateName: {'a' * 40}, name: '', namespace: ''"))
    metadata = load_manifest(file).metadata
    assert (len(metadata.name), metadata.namespace) == (45, "default")


def test_whatever_a_server_has_added_to_a_stored_object_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    of_a_server = "uid: x, managedFields: [{manager: kubectl}], ownerReferences: [], ofALaterRelease: {a: 1}"
    file.write_text(GOOD.replace("name: a", f"name: a, {of_a_server}"))
    assert load_manifest(file).metadata.name == "a"
    file.write_text(GOOD.replace("name: a", "name: a, ofALaterRelease: {a: 1}"))
    with pytest.raises(ManifestError, match=r"ofALaterRelease: got .*unknown field"):
        load_manifest(file)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        load_manifest(tmp_path / "none.yaml")
    with pytest.raises(ManifestError, match="cannot be read: Is a directory"):
        load_manifest(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_a_problem(text: bytes) -> None:
    with contextlib.suppress(ManifestError):  # nothing else may come out
        assert isinstance(parse_document(text, "m.yaml"), dict)
