"""``--set spec.path=value``: change one field of a manifest from the command line, before it is checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rljob.api.document import parse_value
from rljob.api.problems import ManifestError, Problem

_SEGMENT = re.compile(r"[^.\[\]\s=]+")
_FORM = (
    "allowed: spec.path=value, such as spec.actors.replicas=2, spec.algorithm.parameters.gamma=0.99 "
    "or spec.failurePolicy.rules[0].action=Ignore"
)


def split_override(text: str) -> tuple[tuple[str, ...], str]:
    """Split ``spec.a.b[0].c=value`` into its path segments and the text of its value. ValueError says what form is
    allowed."""
    path, equals, value = text.partition("=")
    if not equals:
        raise ValueError(_FORM)
    segments = tuple(path.strip().replace("[", ".").replace("]", "").split("."))
    if len(segments) < 2 or segments[0] not in ("spec", "metadata"):
        raise ValueError(_FORM)
    if not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise ValueError(_FORM)
    return segments, value.strip()


def apply_overrides(document: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of ``document`` with ``overrides`` applied in order. Raises ManifestError, with each one that does not apply.

    Lists of named things are addressed by name, and a parameter that is not in the list yet is added; other lists by
    index.
    An empty value (``spec.image=``) removes the field, so that its default counts. A field that is not there is left as a
    null, which the validation passes over where the field exists and refuses where it is misspelt; what has no such check,
    an entry of a list, must be there.
    Whether the resulting fields exist and their values are allowed is for the validation that follows.
    """
    result: dict[str, Any] = _copy(document)
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
    parameter = len(segments) >= 3 and segments[-2] == "parameters"
    value = value_text if parameter else parse_value(value_text)
    node: Any = document
    for depth, segment in enumerate(segments[:-1]):
        following: Any = [] if segment == "parameters" else {}
        node = _descend(node, segment, ".".join(segments[: depth + 1]), following)
    _set_leaf(node, segments[-1], value, remove=value_text == "", parameter=parameter, path=".".join(segments[:-1]))


def _descend(node: Any, segment: str, path: str, fresh: Any) -> Any:
    """The child ``segment`` of ``node``, made anew (as ``fresh``) where there is none."""
    if isinstance(node, list):
        return node[_index(node, segment, path)]
    if not isinstance(node, dict):
        raise ValueError(f"allowed: a field of an object, but the manifest has {node!r} above {path}")
    if node.get(segment) is None:
        node[segment] = fresh
    return node[segment]


def _set_leaf(node: Any, segment: str, value: Any, *, remove: bool, parameter: bool, path: str) -> None:
    if isinstance(node, list) and parameter:
        kept = [item for item in node if not (isinstance(item, dict) and item.get("name") == segment)]
        at = next(
            (i for i, item in enumerate(node) if isinstance(item, dict) and item.get("name") == segment), len(kept)
        )
        if remove and len(kept) == len(node):
            names = [str(item.get("name")) for item in node if isinstance(item, dict)]
            raise ValueError(f"nothing to remove: the manifest's parameters are {', '.join(names) or 'none'}")
        node[:] = kept if remove else [*kept[:at], {"name": segment, "value": value}, *kept[at:]]
    elif isinstance(node, list):
        at = _index(node, segment, f"{path}.{segment}")
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
        raise ValueError(f"allowed: a field of an object, but {path} is {node!r} in the manifest")


def _index(node: list[Any], segment: str, path: str) -> int:
    for at, item in enumerate(node):
        if isinstance(item, dict) and item.get("name") == segment:
            return at
    if segment.isascii() and segment.isdecimal() and int(segment) < len(node):
        return int(segment)
    names = [str(item["name"]) for item in node if isinstance(item, dict) and "name" in item]
    known = f" or a name ({', '.join(names)})" if names else ""
    raise ValueError(f"allowed in {path}: an index below {len(node)}{known}")


def _copy(value: Any) -> Any:
    """A deep copy of plain values; YAML aliases come apart, so that a change stays where it was made."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
