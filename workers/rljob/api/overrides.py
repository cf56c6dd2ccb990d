"""Change fields of a manifest by their paths, before it is checked: ``--set spec.path=value``, and pairs of path and value."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rljob.api.document import parse_value
from rljob.api.experiment import model_of
from rljob.api.fields import TypedPlace, typed_place
from rljob.api.problems import ABSENT, ManifestError, Problem, plain

_STEP = re.compile(r"(?:^|\.)([^.\[\]\s=]+)|\[([^\[\]\s=]+)\]")
_QUOTED = re.compile(r"'.*'|\".*\"", re.DOTALL)
_PATHS = (
    "such as actors.replicas or spec.actors.replicas, spec.algorithm.gamma, spec.failurePolicy.rules[0].action or "
    "spec.actors.nodeSelector[kubernetes.io/arch]"
)
Override = tuple[str, Any]
"""The path of a field, and its value as it is; ABSENT removes the field, so that its preset or default counts."""


def segments_of(path: str) -> tuple[str, ...]:
    """Split ``spec.a.b[0].c`` into its segments. ValueError says what form is allowed.

    Brackets hold an index, a name or a key with dots in it. ``spec.`` may be left out, as `rljob explain` has it.
    """
    steps = list(_STEP.finditer(path := str(path)))  # a program may have any key there
    segments = tuple(step[1] or step[2] for step in steps)
    if segments[:1] not in (("spec",), ("metadata",)):
        segments = ("spec", *segments)
    if len(segments) < 2 or "".join(step[0] for step in steps) != path:
        raise ValueError(f"allowed: a path {_PATHS}")
    return segments


def read_overrides(texts: Sequence[str], document: Mapping[str, Any]) -> list[Override]:
    """The overrides of ``document`` that ``--set`` gives as texts. It alone reads values from text: everything else has them.
    Raises ManifestError, with each text that is no override.

    A field whose type is a text (a word out of several, a name, a quantity, an annotation) takes the value as it stands, unless
    it is quoted as in YAML; every other value is YAML: a number, ``true``, ``[0, 2, 3]``, ``{cpu: 500m}``. An empty value
    (``spec.image=``) removes the field.
    """
    found: list[Override] = []
    problems: list[Problem] = []
    for text in texts:
        path, equals, written = (part.strip() for part in text.partition("="))
        try:
            if not equals:
                raise ValueError(f"allowed: path=value, with a path {_PATHS}")
            place = typed_place(model_of(document), segments_of(path))
            as_it_stands = place is not None and place.is_text and not _QUOTED.fullmatch(written)
            found.append((path, ABSENT if not written else written if as_it_stands else parse_value(written)))
        except ValueError as error:
            problems.append(Problem("--set", text, str(error)))
    if problems:
        raise ManifestError(problems)
    return found


def apply_overrides(document: Mapping[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """Return a copy of ``document`` with ``overrides`` applied in order. Raises ManifestError, with each one that does not apply.

    An entry of a list is addressed by its index, or by its name if it has one. A field, not a key of a map, that is to be removed
    and is not there is left as a null, which the validation passes over where the field exists and refuses where it is misspelt;
    what has no such check, an entry of a list, must be there. Whether the resulting fields exist and their values are allowed is
    for the check that follows.
    """
    result: dict[str, Any] = plain(document)
    problems: list[Problem] = []
    for path, value in overrides:
        try:
            segments = segments_of(path)
            _assign(result, segments, value if value is ABSENT else plain(value, segments))
        except ManifestError as error:
            problems += error.problems
        except ValueError as error:
            problems.append(Problem(path, ABSENT, str(error)))
    if problems:
        raise ManifestError(problems)
    return result


def _assign(document: dict[str, Any], segments: tuple[str, ...], value: Any) -> None:
    node: Any = document
    kind: TypedPlace | None = TypedPlace(model_of(document))
    for depth, segment in enumerate(segments):
        at = _key(node, segment, ".".join(segments[:depth]))
        there = isinstance(node, list) or node.get(at) is not None
        of_a_map = kind is not None and kind.is_map
        kind = kind.below(segment) if kind is not None else None
        if depth < len(segments) - 1:
            if not there:
                node[at] = [] if kind is not None and kind.is_list else {}
            node = node[at]
        elif value is not ABSENT:
            node[at] = value
        elif of_a_map:
            node.pop(at, None)
        elif there:
            del node[at]
        else:
            node[at] = None


def _key(node: Any, segment: str, above: str) -> Any:
    """Where ``segment`` lies in ``node``, the value of ``above``: an index of a list, by an entry's name too, or a key."""
    if isinstance(node, dict):
        return segment
    if not isinstance(node, list):
        raise ValueError(f"allowed: a field of an object, but {above} is {node!r} in the manifest")
    names = [str(item["name"]) if isinstance(item, dict) and "name" in item else None for item in node]
    if segment in names:
        return names.index(segment)
    if segment.isascii() and segment.isdecimal() and int(segment) < len(node):
        return int(segment)
    if not node:
        raise ValueError(f"the manifest has no entry in {above}; allowed: the whole list, such as {above}=[...]")
    known = f" or a name ({', '.join(filter(None, names))})" if any(names) else ""
    raise ValueError(f"allowed in {above}: an index below {len(node)}{known}")
