"""Every field of an RLJob explained, from its type: what it takes, its default, when it may change, and which presets set it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args, get_origin

from annotated_types import MaxLen, MinLen
from pydantic import BaseModel

from rljob.api.document import in_one_line
from rljob.api.effective import default_words
from rljob.api.experiment import RLExperiment
from rljob.api.fields import TypedPlace, in_words, paragraphs, places_below
from rljob.api.job import Metadata, RLJob, RLJobSpec
from rljob.api.mutability import When, places
from rljob.api.presets import PRESETS, by_path, is_set
from rljob.api.problems import folded, nearest, unknown_name
from rljob.api.roles import EnvVar
from rljob.api.status import RLJobStatus
from rljob.api.types import DecimalText, Integer, JSONObject, ListOrWord, QuantityText, Real, Text, WordOrFactory

_ROOTS: Final[Mapping[str, TypedPlace]] = {
    **{name: place for name in ("apiVersion", "kind", "metadata", "spec") if (place := TypedPlace(RLJob).below(name))},
    "status": TypedPlace(RLJobStatus),
}
_EXPERIMENT: Final = TypedPlace(RLExperiment)
_WHEN: Final = {
    When.ANY_TIME: "at any time",
    When.LIVE: "at any time: a running learner takes it between two updates",
    When.WHILE_SUSPENDED: "while the job is suspended",
    When.NEVER: "never",
}
_INDEX = re.compile(r"\[\w*\]")
_LINK = re.compile(r"https://\S+")
_MOST_SUGGESTIONS = 6
_VERY_LIKE = 0.8
_SINGULAR = re.compile(r"^(integer|number|text|mapping|value|section)\b")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say about a field.

    Attributes:
        path: where it is in the manifest, with ``[]`` after a list.
        type: what it takes, in words. default, changes: its default and when it may change; empty where there is nothing to say.
        description: paragraphs, each one line.
        presets: the presets that set it, and to what; none for a section.
        fields: those of a section, its own before those that it shares with others.
    """

    path: str
    type: str
    default: str
    changes: str
    description: tuple[str, ...]
    presets: Mapping[str, Any]
    fields: Mapping[str, TypedPlace]


class UnknownField(ValueError):
    """There is no such field; ``str()`` names the nearest ones."""


def explained(path: str) -> Explanation:
    """Explain a field: ``algorithm.learningRate`` of the spec, or with ``spec.``, ``status.``, ``metadata.`` or ``rljob.``
    before it; of an experiment with
    ``rlexperiment.``; the spec where ``path`` is empty. Entries of lists need no index. Raises UnknownField."""
    steps = _steps(path)
    shown, place = _walked(steps)
    return replace(_explanation(shown, place), changes=_changes(steps))


def _explanation(shown: str, place: TypedPlace) -> Explanation:
    return Explanation(
        path=shown,
        type=type_in_words(place),
        default=_default(place, shown),
        changes="",
        description=_description(place),
        presets=by_path().get(shown, {}),
        fields=dict(place.entry.fields_below()),
    )


def wherever(path: str) -> list[Explanation]:
    """Explain the field at ``path``; where there is none, the fields whose paths end so, as `algorithm.learningRate` does
    with ``learningRate``, unless they are many. Raises UnknownField."""
    try:
        return [explained(path)]
    except UnknownField:
        ending = f".{folded(_INDEX.sub('', path.strip()))}"
        found = [each for each in all_paths() if folded(_INDEX.sub("", each)).endswith(ending)]
        if not 0 < len(found) <= _MOST_SUGGESTIONS:
            raise
        return [explained(each) for each in found]


def explained_own(model: type[BaseModel], name: str, path: str) -> Explanation:
    """Explain a parameter of what a user has written, whose parameters are a ``model``; all of them where ``path`` is empty.
    ``name`` is what it is called. Raises UnknownField."""
    place, shown = TypedPlace(model), name
    for step in filter(None, path.split(".")):
        if (below := place.entry.below(step)) is None:
            raise UnknownField(f"{shown}: {unknown_name(step, place.entry.field_names, 'parameter')}")
        place, shown = below, f"{shown} {step}"
    return _explanation(shown, place)


def all_paths() -> Iterator[str]:
    """The path of every field, as it is shown."""
    for root, place in _ROOTS.items():
        yield from (root, *(path for path, _ in places_below(place, root)))


def _steps(path: str) -> tuple[str, ...]:
    steps = [step for step in _INDEX.sub("", path.strip()).split(".") if step]
    if steps and steps[0].lower() in ("rljob", "rljobs"):
        del steps[0]
    if not steps:
        return ("spec",)
    if steps[0].lower() in ("rlexperiment", "rlexperiments"):
        below = steps[1:]
        return ("rlexperiment", *(("spec",) if below and below[0] not in _EXPERIMENT.field_names else ()), *below)
    root = next((name for name in _ROOTS if name.lower() == steps[0].lower()), None)
    return (root, *steps[1:]) if root is not None else ("spec", *steps)


def _walked(steps: tuple[str, ...]) -> tuple[str, TypedPlace]:
    """The place at the end of ``steps``, and its path as it is shown."""
    shown, place = steps[0], _EXPERIMENT if steps[0] == "rlexperiment" else _ROOTS[steps[0]]
    for step in steps[1:]:
        if place.is_list and step.isdecimal():
            continue
        owner, path = place.entry, f"{shown}{'[]' if place.is_list else ''}"
        below = owner.below(step)
        if below is None:
            raise UnknownField(_of_kubernetes(shown, place, step) or _unknown(path, owner, step))
        shown, place = f"{path}.{step}", below
    return shown, place


def _of_kubernetes(shown: str, place: TypedPlace, step: str) -> str:
    """Where the fields of one of Kubernetes' own types are described; empty where the place is of no such type."""
    owner, link = place.entry, _LINK.search(place.description)
    own_name = owner.model is not None and nearest(step, owner.field_names) is not None
    if link is None or own_name or not (owner.model is None or issubclass(owner.model, EnvVar | Metadata)):
        return ""
    return f"{shown} has Kubernetes' own form; what may stand below it is described in {link[0]}"


def _unknown(shown: str, owner: TypedPlace, step: str) -> str:
    known = owner.field_names
    if not known:
        return f"{shown} ({type_in_words(owner)}) has no fields that are described here"
    if step in PRESETS:
        return f"{shown} has no field {step!r}; it is a preset, which rljob render {step} shows"
    found = _meant(shown, known, step)[:_MOST_SUGGESTIONS]
    if not found:
        return f"{shown} has no field {step!r}; known here: {', '.join(sorted(known))}"
    return f"{shown} has no field {step!r}; did you mean {in_words(found, 'or')}?"


def _meant(shown: str, known: Sequence[str], step: str) -> list[str]:
    """The fields that ``step`` may stand for below ``shown``, which has those of ``known``: first the surest kind of match, of
    those whose names end so the shortest name."""
    last = {path: path.rpartition(".")[2] for path in all_paths()}
    if (here := nearest(step, known, _VERY_LIKE)) is not None:
        return [f"{shown}.{here}"]
    if longer := [path for path, name in last.items() if folded(name).endswith(folded(step))]:
        return sorted(longer, key=lambda path: len(last[path]))
    if (elsewhere := nearest(step, last.values(), _VERY_LIKE)) is not None:
        return [path for path, name in last.items() if name == elsewhere]
    here = nearest(step, known)
    return [f"{shown}.{here}"] if here is not None else []


def _description(place: TypedPlace) -> tuple[str, ...]:
    """The field's own words, then those of its type."""
    of_type = place.entry.model
    return tuple(dict.fromkeys((*paragraphs(place.description), *paragraphs(of_type.__doc__ if of_type else ""))))


def _default(place: TypedPlace, shown: str) -> str:
    if place.owner is None or place.field is None or shown.startswith("status."):
        return ""
    if place.field.is_required():
        return "none: it must be written" + (
            ", unless a preset gives it" if place.model is not RLJobSpec and is_set(shown) else ""
        )
    return "" if place.model is not None else default_words(place.owner, place.name, in_one_line)


def _changes(steps: tuple[str, ...]) -> str:
    if steps[0] == "status":
        return "written by the controller alone"
    if steps[0] != "spec" or len(steps) == 1:
        return ""
    path = f"{'.'.join(steps[1:])}."
    marks = {
        each.mutability
        for each in places(RLJobSpec, whole_sections=False)
        if path.startswith(f"{each.path}.") or each.path.startswith(path)
    }
    if len(marks) > 1:
        return "some of its fields at other times than others; each one says when"
    return ": ".join(part for mark in marks for part in (_WHEN[mark.when], mark.why) if part)


def type_in_words(place: TypedPlace) -> str:
    """What a place takes, with its bounds: ``number from 0 to 1``, ``one of Auto, Enabled, Disabled``."""
    marked = next((words for marker in place.metadata if (words := _of_marker(marker))), None)
    if marked is not None:
        return marked
    if place.model is not None:
        return "section"
    if place.is_list:
        entry = place.below(0)
        assert entry is not None
        words = next((f", or {' or '.join(m.words)}" for m in place.metadata if isinstance(m, ListOrWord)), "")
        return f"list of {_plural(type_in_words(entry))}{_size(place.metadata)}{words}"
    if get_origin(place.annotation) is dict:
        value = place.below("")
        return "mapping" if value is None else f"map of texts to {_plural(type_in_words(value))}"
    if get_origin(place.annotation) is Literal:
        allowed = [word or '""' for word in get_args(place.annotation)]
        return allowed[0] if len(allowed) == 1 else f"one of {', '.join(allowed)}"
    return {bool: "true or false", int: "integer", float: "time", Any: "value"}.get(
        place.annotation, "text"
    )  # status has times alone


def _of_marker(marker: Any) -> str:
    """The words of a marker; empty if it is none, and for that of a list, which is said with it."""
    allowed = getattr(marker, "allowed", "").removeprefix("allowed: ").removeprefix("an ").removeprefix("a ")
    match marker:
        case DecimalText():
            return f"text of a {allowed.removesuffix(' upwards')}"
        case Integer() | Real():
            return allowed.replace("finite number", "number").removesuffix(" upwards")
        case WordOrFactory():
            return f"one of {allowed}"
        case Text():
            return "text" if marker.kind == "text" else f"text: {marker.kind}"
        case QuantityText():
            return "quantity, such as 500m, 2 or 4Gi"
        case JSONObject():
            return "mapping"
    return ""


def _plural(words: str) -> str:
    return _SINGULAR.sub(r"\1s", words)


def _size(metadata: tuple[Any, ...]) -> str:
    most = next((item.max_length for item in metadata if isinstance(item, MaxLen)), None)
    most = next((item.most for item in metadata if isinstance(item, ListOrWord)), most)
    least = next((item.min_length for item in metadata if isinstance(item, MinLen)), 0)
    if most is None:
        return f", at least {least}" if least else ""
    return f", {most}" if least == most else f", {least} to {most:,} of them" if least else f", at most {most:,}"
