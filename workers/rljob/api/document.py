"""From the text of a manifest to plain values: YAML with every trap of YAML turned into a problem with a line and a column.

How scalars are read, and how a document is written, is in `rljob.api.yaml_dialect`."""

import json
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

import yaml
from yaml.reader import ReaderError

from rljob.api.plain import MAX_VALUES, plain
from rljob.api.problems import ABSENT, ManifestError, Problem, odd_character
from rljob.api.yaml_dialect import MERGE, NULL, STRING, Reader, scalar

MAX_BYTES = 1 << 19
"""Largest manifest read. A cluster keeps a job's spec twice, as it was written and as it is in force, in an object of 1.5 MB."""
_TAB = "found character '\\t' that cannot start any token"
"""How PyYAML's message about a tab ends."""


def parse_document(text: bytes, source: str) -> dict[str, Any]:
    """Parse one YAML (or JSON) document that is a mapping. ``source`` names the text in problems. Raises ManifestError.

    Refused, each with its place: bytes that are no UTF-8, malformed YAML, nothing at all, several documents, something
    else than a mapping, the same key twice, keys that are no strings, numbers that JSON lacks or that have a leading zero, and
    aliases that contain themselves or unfold beyond 100,000 values.
    """
    if len(text) > MAX_BYTES:
        raise ManifestError([Problem(source, ABSENT, f"has {len(text):,} bytes; allowed: up to {MAX_BYTES:,}")])
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"byte 0x{text[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise ManifestError([Problem(_at(source, text[: error.start].split(b"\n")), ABSENT, message)]) from None
    if decoded.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):  # JSON has tabs between values, YAML has none
            json.loads(decoded)
            decoded = decoded.replace("\t", " ")
    try:
        loader = Reader(decoded)
        try:
            return _mapping(loader, source)
        finally:
            loader.dispose()
    except ManifestError:  # a ValueError too
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        if what.endswith(_TAB):
            what = "a tab; indent with spaces"
        elif mark is not None:
            begun = max((error.context_mark or mark).line - 1, 0)
            lines = "".join(decoded.splitlines(keepends=True)[begun : mark.line + 1])
            what += (odd := odd_character(lines, unseen=True)) and f"; there is {odd}, which YAML takes for text"
        raise ManifestError([Problem(_place(source, mark), ABSENT, f"not valid YAML: {what}")]) from None
    except ReaderError as error:
        place = _at(source, decoded[: error.position].split("\n"))
        message = f"not valid YAML: the character U+{ord(decoded[error.position]):04X}; delete it"
        raise ManifestError([Problem(place, ABSENT, message)]) from None
    except RecursionError:
        raise ManifestError(
            [Problem(source, ABSENT, "is nested too deeply; an RLJob needs about ten levels")]
        ) from None


def parse_value(text: str) -> Any:
    """The value of one override: a YAML scalar or a one-line list or mapping. ValueError if it is neither."""
    try:
        found = parse_document(f"value: {plain(text)}".encode(), "value")
    except ManifestError as error:
        raise ValueError(error.problems[0].message) from None
    if len(found) > 1:
        raise ValueError("allowed: one value; quote a text of several lines")
    return found["value"]


def _mapping(loader: Reader, source: str) -> dict[str, Any]:
    nodes: list[yaml.Node] = []
    while loader.check_node() and (node := loader.get_node()) is not None:
        nodes.append(node)
    # Like kubectl: Helm's output and a last "---" leave documents without anything in them.
    nodes = [node for node in nodes if not (isinstance(node, yaml.ScalarNode) and node.tag == NULL)]
    if not nodes:
        raise ManifestError([Problem(source, ABSENT, "is empty; allowed: one RLJob document")])
    if len(nodes) > 1:
        place = _place(source, nodes[1].start_mark)
        raise ManifestError([Problem(place, ABSENT, f"has {len(nodes)} documents; allowed: one RLJob a file")])
    node = nodes[0]
    if not isinstance(node, yaml.MappingNode):
        found = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
        raise ManifestError(
            [
                Problem(
                    _place(source, node.start_mark),
                    ABSENT,
                    f"is {found}; allowed: a mapping with apiVersion, kind, metadata and spec",
                )
            ]
        )
    problems: list[Problem] = []
    _check(node, source, problems, set(), [0])
    if problems:
        raise ManifestError(problems)
    document: dict[str, Any] = loader.construct_document(node)
    return document


def _check(node: yaml.Node, source: str, problems: list[Problem], open_nodes: set[int], count: list[int]) -> None:
    """Collect what is wrong below ``node``; ``open_nodes`` are its ancestors, ``count`` the values met so far."""
    count[0] += 1
    if id(node) in open_nodes:
        raise ManifestError([Problem(_place(source, node.start_mark), ABSENT, "contains itself through an alias")])
    if count[0] > MAX_VALUES:
        raise ManifestError([Problem(source, ABSENT, f"unfolds to more than {MAX_VALUES:,} values")])
    if node.tag not in Reader.yaml_constructors:
        shown = node.value if node.tag == MERGE else node.tag.replace("tag:yaml.org,2002:", "!!")
        message = (
            "allowed: texts, numbers, true, false, null, lists and mappings; leave the tag out, or quote what is a text"
        )
        problems.append(Problem(_place(source, node.start_mark), shown, message))
        return
    open_nodes.add(id(node))
    if isinstance(node, yaml.MappingNode):
        first: dict[Hashable, yaml.Mark] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (STRING, MERGE):
                shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                problems.append(Problem(_place(source, key.start_mark), shown, "allowed as a key: a string; quote it"))
            elif key.value in first:
                line = first[key.value].line + 1
                problems.append(
                    Problem(
                        _place(source, key.start_mark),
                        key.value,
                        f"allowed: each key once; this one is also in line {line}",
                    )
                )
            else:
                first[key.value] = key.start_mark
                if key.tag == STRING:
                    _check(key, source, problems, open_nodes, [0])
            _check(value, source, problems, open_nodes, count)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check(item, source, problems, open_nodes, count)
    elif isinstance(node, yaml.ScalarNode):
        try:
            scalar(node)
        except ValueError as error:
            problems.append(Problem(_place(source, node.start_mark), node.value, str(error)))
    open_nodes.discard(id(node))


def _at(source: str, before: Sequence[str] | Sequence[bytes]) -> str:
    """The place after the lines ``before``."""
    return f"{source}:{len(before)}:{len(before[-1]) + 1}"


def _place(source: str, mark: yaml.Mark | None) -> str:
    return source if mark is None else f"{source}:{mark.line + 1}:{mark.column + 1}"
