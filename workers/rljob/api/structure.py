"""From pydantic's errors to problems in the words of the manifest: paths by name, the nearest known field, what is
allowed; and whether the parameters in ``spec.algorithm`` are those of its algorithm, which takes less than all together do."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.algorithm import CUSTOM, SHARED, AlgorithmSpec
from rljob.api.document import in_one_line
from rljob.api.fields import OfParameters, TypedPlace, first_sentence, in_words, literal_values, mark_in, typed_place
from rljob.api.job import API_VERSION, KIND, RLJob
from rljob.api.names_elsewhere import CALLED_HERE, MOVED, moved_to
from rljob.api.parameters import ParameterSet
from rljob.api.problems import ABSENT, Location, Problem, folded, nearest, path_of, unknown_name
from rljob.api.rules.algorithm import an_environment_or_a_preset
from rljob.api.types import ALLOWED
from rljob.loading import PLUGIN_FAILURES, PluginProblem

_OF_A_PRESET: frozenset[Location] = frozenset(
    (
        ("spec",),
        ("spec", "environment"),
        ("spec", "environment", "id"),
    )
)
"""What every preset has: where no preset is named, one sentence asks for all that is missing of it; with an unknown preset
nothing of it is asked for."""


_CALLED_HERE: Mapping[tuple[Location, str], str] = {
    (place, name): f"; what others call {name} is algorithm: {{type: {algorithm}}} here"
    for place in (("spec", "algorithm"), ("spec", "algorithm", "type"))
    for algorithm, each in BUILT_IN.items()
    for name in each.elsewhere
}
"""The place of an algorithm, and its name elsewhere -> what to write."""
_BY_SPELLING = {folded(name): path for name, path in CALLED_HERE.items()}
_LONGEST_EXAMPLE = 60
_WORDS = {
    ALLOWED: "{allowed}",
    "value_error": "{error}",  # in the words of the check that raised it
    "assertion_error": "{error}",
    "bool_type": "allowed: true or false",
    "bool_parsing": "allowed: true or false",
    "string_unicode": "allowed: text that is valid Unicode",
    "list_type": "allowed: a list, such as [a, b]",
    "too_long": "allowed: at most {max_length} entries, here {actual_length}",
    "too_short": "allowed: a list of at least {min_length}",
}
"""What to say by pydantic's kind of error, with what that says of the value."""


def structural_problems(error: ValidationError, model: type[BaseModel] = RLJob) -> tuple[list[Problem], list[Location]]:
    """Pydantic's errors of a document that is a ``model`` as problems, and where in it the wrong values lie."""
    problems: list[Problem] = []
    places: list[Location] = []
    items = error.errors(include_url=False)
    said = any(item["loc"] == ("spec", "preset") for item in items)  # a preset that is none is what has to be mended
    for item in items:
        location = tuple(part for part in item["loc"] if part != "[key]")
        if item["type"] == "default_factory_not_called":  # it follows from another field, whose value is wrong
            continue
        places.append(location)
        if item["type"] == "missing" and location in _OF_A_PRESET:
            if not said:
                problems.append(Problem("spec", ABSENT, an_environment_or_a_preset.message))
                said = True
            continue
        kind, context, value = item["type"], item.get("ctx", {}), item["input"]
        if kind == "missing":
            value, message = ABSENT, f"required: {_purpose(model, location)}"
        elif kind == "extra_forbidden":
            place = typed_place(model, location[:-1])
            instead = moved_to(path_of(location).removeprefix("spec."))
            message = f"removed; {instead}" if instead else _unknown_field(str(location[-1]), place)
        elif kind == "literal_error":
            expected = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            near = nearest(value, expected) if isinstance(value, str) and len(expected) > 1 else None
            message = f"allowed: {', '.join(expected)}" + (f"; did you mean {near!r}?" if near else "")
        elif kind in ("model_type", "dict_type", "model_attributes_type"):
            message = f"allowed: a mapping of fields{_such_as(typed_place(model, location), value)}"
        else:
            known = {name: "more" if given is None else given for name, given in context.items()}
            message = _WORDS.get(kind, "allowed: something else ({msg})").format(msg=item["msg"], **known)
        hint = _CALLED_HERE.get((location, value if isinstance(value, str) else ""), "")
        problems.append(Problem(path_of(location), value, message + hint))
    return problems, places


def _unknown_field(name: str, place: TypedPlace | None) -> str:
    """That a section has no such field, and which one was likely meant: one of that name in a section below it comes first."""
    if place is None:
        return unknown_name(name, (), "field")
    below = (
        f"{section}.{field}"
        for section, found in place.fields_below()
        for field in found.field_names
        if folded(field) == folded(name)
    )
    if (called := _called_here(name, place)) is not None:
        return called
    if ":" in name:
        return "unknown field; a space belongs behind the colon that ends a field's name"
    same = None if nearest(name, place.field_names, likeness=1.0) else next(below, None)
    if same is not None:
        return f"unknown field; did you mean {same!r}?"
    if place.owner is AlgorithmSpec and nearest(name, place.field_names) is None and (shared := nearest(name, SHARED)):
        return f"unknown field; did you mean 'spec.algorithm.{shared}'?"
    return unknown_name(name, place.field_names, "field")


def _called_here(name: str, section: TypedPlace) -> str | None:
    """What a field with another library's ``name`` is called here."""
    known = section.field_names
    path = _BY_SPELLING.get(folded(f"{section.name}.{name}")) or _BY_SPELLING.get(folded(name), "")
    field = path.rpartition(".")[2]
    if not path or folded(name) in map(folded, known):
        return None
    if field in known:
        return f"unknown field; that is {field!r} here"
    return f"unknown field; that is 'spec.{path}' here"


def _such_as(place: TypedPlace | None, value: Any) -> str:
    """What to write in the place of a ``value`` that stands where a section is due: the field most likely meant with it."""
    if (
        place is None
        or not isinstance(value, str | int | float)
        or not (str(value).isprintable() and len(str(value)) <= _LONGEST_EXAMPLE)
    ):
        return ""
    fields = [(name, below.field) for name, below in place.fields_below() if below.field is not None]
    words = [name for name, field in fields if value in literal_values(field)]
    due = [
        name
        for name, field in fields
        if field.is_required() and not literal_values(field) and isinstance(value, str) == (field.annotation is str)
    ]
    others = [name for name, field in fields if type(value) is type(field.default) is not str]
    return "".join(f", such as {{{name}: {in_one_line(value)}}}" for name in [*words, *due, *others][:1])


def _purpose(model: type[BaseModel], location: Location) -> str:
    """What is missing at ``location``, and what is allowed there."""
    if location == ("apiVersion",):
        return API_VERSION
    if location == ("kind",):
        return KIND
    place = typed_place(model, location)
    if place is None or place.field is None:
        return "a value"
    words = literal_values(place.field)
    meaning = first_sentence(place.description).rstrip(".") or "a value"
    return f"{meaning}; allowed: {', '.join(words)}" if words else meaning


def without_nulls(document: dict[str, Any], model: type[BaseModel] = RLJob) -> dict[str, Any]:
    """A copy of a manifest without the nulls that count as not given.

    Those of known fields go, and those in maps of a known kind (labels, resources). The others stay for the checks: under
    an unknown name, where a misspelt field must be refused although it holds nothing; as an entry of a list; and inside
    what has no schema, a pod template, where a null removes a field of the generated pod.
    """
    found: dict[str, Any] = _without(document, TypedPlace(model))
    return found


def _without(value: Any, place: TypedPlace | None) -> Any:
    if isinstance(value, dict) and place is not None:
        below = {key: place.below(key) for key in value}
        return {
            key: _without(item, below[key]) for key, item in value.items() if item is not None or below[key] is None
        }
    if isinstance(value, list) and place is not None and place.is_list:
        return [_without(item, place.below(0)) for item in value]
    return value


_HERE: Location = ("spec", "algorithm")


def misfits(algorithm: AlgorithmSpec) -> list[tuple[Problem, Location]]:
    """What is wrong with the parameters, each with its place in the document. Of a Custom algorithm only where it is loaded can
    more be told than that what it shares with others does not stand with its own."""
    return list(_of_custom(algorithm) if algorithm.type == CUSTOM else _of_built_in(algorithm))


def _of_built_in(algorithm: AlgorithmSpec) -> Iterator[tuple[Problem, Location]]:
    kind = BUILT_IN[algorithm.type].parameters
    for alias, value in algorithm.shared.items():
        if SHARED[alias] not in kind.model_fields:
            yield problem_at(alias, value, without(algorithm.type, alias))
    try:
        _ = algorithm.parameters
    except ValidationError as error:
        for problem, place in zip(*structural_problems(error, kind), strict=True):
            yield problem_at(str(place[0]), problem.value, f"{problem.message}, with algorithm {algorithm.type}")


def _of_custom(algorithm: AlgorithmSpec) -> Iterator[tuple[Problem, Location]]:
    own = algorithm.custom.parameters if algorithm.custom is not None else {}
    for name, value in own.items():
        if instead := MOVED.get(f"algorithm.*.{name}"):
            place = (*_HERE, "custom", "parameters", name)
            yield Problem(path_of(place), value, f"not allowed here; write spec.{instead} instead"), place


def problem_at(alias: str, value: Any, message: str) -> tuple[Problem, Location]:
    """A problem with a parameter that stands in ``spec.algorithm`` itself."""
    return Problem(f"spec.algorithm.{alias}", value, message), (*_HERE, alias)


def without(algorithm: str, alias: str) -> str:
    """That an algorithm has no such parameter, and which built-in ones do."""
    mark = mark_in(AlgorithmSpec.model_fields[SHARED[alias]], OfParameters)
    assert mark is not None, "what is shared is made of parameter sets"
    having = [*mark.sets]
    return f"not allowed: {algorithm} has no such parameter; {in_words(having)} {'has' if len(having) == 1 else 'have'}"


def check_defaults(whose: str, kind: type[ParameterSet]) -> None:
    """Raise PluginProblem where a default of ``kind``, a plug-in's, does not match its type: that is its author's mistake, and
    none in a manifest. Rules between several fields are not checked: they may need values that only a manifest gives."""
    try:
        kind.model_validate({}, by_alias=True, by_name=False)
    except ValidationError as error:
        problems, places = structural_problems(error, kind)
        names = {field.alias or name: name for name, field in kind.model_fields.items()}
        for problem, place in zip(problems, places, strict=True):
            name = names.get(str(place[0]) if place else "")
            if name is not None and not kind.model_fields[name].is_required():
                raise PluginProblem(
                    f"{whose}: the default of {name} in {kind.__name__} is {problem.value!r}; {problem.message}"
                ) from None
    except PLUGIN_FAILURES:  # a check of the author's own that fails is told where it is asked about a manifest
        return
