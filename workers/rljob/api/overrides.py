"""``--set spec.path=value``: change one field of a manifest from the command line, before it is checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rljob.api.document import parse_value, plain_copy
from rljob.api.experiment import model_of
from rljob.api.paths import TypedPlace
from rljob.api.problems import ManifestError, Problem

_STEP = re.compile(r"(?:^|\.)([^.\[\]\s=]+)|\[([^\[\]\s=]+)\]")
_QUOTED = re.compile(r"'.*'|\".*\"", re.DOTALL)
_FORM = (
    "allowed: path=value, such as actors.replicas=2 or spec.actors.replicas=2, spec.algorithm.impala.gamma=0.99, "
    "spec.failurePolicy.rules[0].action=Ignore or spec.actors.nodeSelector[kubernetes.io/arch]=arm64"
)


def split_override(text: str) -> tuple[tuple[str, ...], str]:
    """Split ``spec.a.b[0].c=value`` into its path segments and the text of its value. ValueError says what form is allowed.

    Brackets hold an index, a name or a key with dots in it. ``spec.`` may be left out, as `rljob explain` has it.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    steps = list(_STEP.finditer(path))
    if not equals or "".join(step[0] for step in steps) != path:
        raise ValueError(_FORM)
    segments = tuple(step[1] or step[2] for step in steps)
    if segments[:1] not in (("spec",), ("metadata",)):
        segments = ("spec", *segments)
    if len(segments) < 2:
        raise ValueError(_FORM)
    return segments, value.strip()


def apply_overrides(document: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of ``document`` with ``overrides`` applied in order. Raises ManifestError, with each one that does not apply.

    A field whose type is a text (a word out of several, a name, a quantity, an annotation) takes the value as it stands, unless
    it is quoted as in YAML; every other value is YAML: a number, ``true``, ``[0, 2, 3]``, ``{cpu: 500m}``. An entry of a list is
    addressed by its index, or by its name if it has one. An empty value (``spec.image=``) removes the field, so that its preset
    or default counts. A field that is not there is then left as a null, which the validation passes over where the field exists
    and refuses where it is misspelt; what has no such check, an entry of a list, must be there.
    Whether the resulting fields exist and their values are allowed is for the validation that follows.
    """
    result: dict[str, Any] = plain_copy(document)
    problems: list[Problem] = []
    for text in overrides:
        try:
            segments, value_text = split_override(text)
            _assign(result, segments, value_text)
        except ValueError as error:
            problems.append(Problem("--set", text, str(error)))
    if problems:
        raise ManifestError(problems)
    return result


def _assign(document: dict[str, Any], segments: tuple[str, ...], value_text: str) -> None:
    node: Any = document
    kind: TypedPlace | None = TypedPlace(model_of(document))
    for depth, segment in enumerate(segments[:-1]):
        kind = kind.below(segment) if kind is not None else None
        fresh: Any = [] if kind is not None and kind.is_list else {}
        node = _descend(node, segment, ".".join(segments[:depth]), fresh)
    kind = kind.below(segments[-1]) if kind is not None else None
    value = _value(value_text, kind)
    _set_leaf(node, segments[-1], value, remove=value_text == "", above=".".join(segments[:-1]))


def _value(text: str, kind: TypedPlace | None) -> Any:
    """What the text of a value stands for in a field of that kind."""
    if kind is not None and kind.is_text and not _QUOTED.fullmatch(text):
        return text
    return parse_value(text)


def _descend(node: Any, segment: str, above: str, fresh: Any) -> Any:
    """The child ``segment`` of ``node``, which is the value of ``above``; made anew (as ``fresh``) where there is none."""
    if isinstance(node, list):
        return node[_index(node, segment, above)]
    if not isinstance(node, dict):
        raise ValueError(f"allowed: a field of an object, but {above} is {node!r} in the manifest")
    if node.get(segment) is None:
        node[segment] = fresh
    return node[segment]


def _set_leaf(node: Any, segment: str, value: Any, *, remove: bool, above: str) -> None:
    if isinstance(node, list):
        at = _index(node, segment, above)
        if remove:
            del node[at]
        else:
            node[at] = value
    elif isinstance(node, dict):
        if remove and segment in node:
            del node[segment]
        else:
            node[segment] = None if remove else value
    else:
        raise ValueError(f"allowed: a field of an object, but {above} is {node!r} in the manifest")


def _index(node: list[Any], segment: str, above: str) -> int:
    for at, item in enumerate(node):
        if isinstance(item, dict) and item.get("name") == segment:
            return at
    if segment.isascii() and segment.isdecimal() and int(segment) < len(node):
        return int(segment)
    if not node:
        raise ValueError(f"the manifest has no entry in {above}; allowed: the whole list, such as {above}=[...]")
    names = [str(item["name"]) for item in node if isinstance(item, dict) and "name" in item]
    known = f" or a name ({', '.join(names)})" if names else ""
    raise ValueError(f"allowed in {above}: an index below {len(node)}{known}")
