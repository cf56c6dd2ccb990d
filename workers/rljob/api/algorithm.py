"""``spec.algorithm``: which algorithm, the parameters that several have, and a block of what each alone has. All of it is made
from the parameter sets of the built-in algorithms: a parameter that several of them have stands in the section itself,
once; a block has what one algorithm alone has. None is declared twice."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, Field, PrivateAttr, create_model, model_validator
from pydantic.alias_generators import to_camel

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.declaration import BuiltIn
from rljob.api.fields import Follows, OfParameters, in_words, mark_in, unwrapped
from rljob.api.mutability import LIVE, UNLEARNED, WHILE_SUSPENDED, Mutability, When, never
from rljob.api.parameters import ParameterSet
from rljob.api.types import FACTORY_PATTERN, APIModel, Integer, JSONObject, Text, WordOrFactory

Fields = dict[str, Any]
"""Python names of fields, and what `pydantic.create_model` wants of them."""


def shared_parameters(declared: Mapping[str, BuiltIn]) -> Fields:
    """The parameters that at least two of the algorithms have, each unset unless it is written."""
    sets = {name: each.parameters for name, each in declared.items()}
    names = dict.fromkeys(field for kind in sets.values() for field in kind.model_fields)
    having = {field: {name: kind for name, kind in sets.items() if field in kind.model_fields} for field in names}
    return {
        field: (_shared(field, found, len(found) == len(sets)), None)
        for field, found in having.items()
        if len(found) > 1
    }


def block(algorithm: str, declared: BuiltIn, shared: Mapping[str, Any]) -> type[APIModel]:
    """The section of what one algorithm alone has. A default that follows from a shared parameter is unset here."""
    kind, fields = declared.parameters, Fields()
    for name, field in kind.model_fields.items():
        if name not in shared:
            follows = field.default_factory is not None and field.default_factory_takes_validated_data
            taken: Any = field.annotation
            taken = taken | None if follows else taken
            made = field.default if field.default_factory is None else Field(default_factory=field.default_factory)
            marks = (*field.metadata, OfParameters({algorithm: kind}))
            fields[name] = (Annotated[taken, *marks], None if follows else made)
    return create_model(f"{algorithm}Block", __base__=APIModel, __doc__=kind.__doc__, **fields)


def _shared(name: str, sets: Mapping[str, type[BaseModel]], of_all: bool) -> Any:
    """The type of a shared parameter: it takes what any of the algorithms takes. Each says itself what is too much for it."""
    fields = [kind.model_fields[name] for kind in sets.values()]
    bare, metadata = zip(*(unwrapped(field.annotation, list(field.metadata)) for field in fields), strict=True)
    of_values = [[each for each in found if not isinstance(each, Mutability | Follows | str)] for found in metadata]
    taken = _widest_type(bare)
    for markers in zip(*of_values, strict=True):
        taken = Annotated[taken, _widest(markers)]
    unlearned = [UNLEARNED] if all(UNLEARNED in found for found in metadata) else []
    return Annotated[taken | None, _mark(name, sets), *unlearned, OfParameters(sets, of_all)]


def _widest_type(types: tuple[Any, ...]) -> Any:
    if get_origin(types[0]) is not Literal:
        return types[0]
    return Literal[tuple(dict.fromkeys(word for each in types for word in get_args(each)))]


def _widest(markers: tuple[Any, ...]) -> Any:
    """A marker of values that takes all that these take. Raises TypeError where that is not known of such ones."""
    first = markers[0]
    if all(each == first for each in markers):
        return first
    if isinstance(first, Integer):
        return Integer(min(each.low for each in markers), max(each.high for each in markers))
    if isinstance(first, WordOrFactory):
        return WordOrFactory(tuple(dict.fromkeys(word for each in markers for word in each.words)))
    raise TypeError(f"a parameter of several algorithms has different bounds: {markers}")


def _mark(name: str, sets: Mapping[str, type[BaseModel]]) -> Mutability:
    """When it may change: what never does with one algorithm may with another, which Python alone can tell
    (`rljob.api.live`)."""
    never = {algorithm: mark for algorithm, kind in sets.items() if (mark := never_changing(kind, name)) is not None}
    if len(never) == len(sets):
        return next(iter(never.values()))
    if all(mark_in(kind.model_fields[name], Mutability) == LIVE for kind in sets.values()):
        return LIVE
    because = next((mark.why for mark in never.values()), "")
    return (
        Mutability(When.WHILE_SUSPENDED, f"never with {in_words([*never])}, as {because}") if never else WHILE_SUSPENDED
    )


def never_changing(kind: type[BaseModel], name: str) -> Mutability | None:
    """The mark of a parameter that never changes with this parameter set."""
    mark = mark_in(kind.model_fields[name], Mutability) if name in kind.model_fields else None
    return mark if mark is not None and mark.when is When.NEVER else None


@cache
def names_in(kind: type[BaseModel]) -> Mapping[str, str]:
    """Name of each field in a manifest -> its Python name."""
    return {field.alias or name: name for name, field in kind.model_fields.items()}


S = TypeVar("S", bound="_Algorithm")
CUSTOM: Final = "Custom"
ANOTHER: Final = "checkpoints of one algorithm mean nothing to another"
BLOCKS: Final[Mapping[str, str]] = {**{name: each.block for name, each in BUILT_IN.items()}, CUSTOM: "custom"}
"""Type of an algorithm -> the field that holds what it alone has."""
_FIELDS: Final = shared_parameters(BUILT_IN)
SHARED: Final[Mapping[str, str]] = {to_camel(name): name for name in _FIELDS}
"""Each parameter that stands in ``spec.algorithm`` itself, by its name there -> its Python name."""

_BLOCKS: Final = {each.block: block(name, each, _FIELDS) for name, each in BUILT_IN.items()}
for _model in _BLOCKS.values():  # a job is pickled for processes that look at its environment, and a class by its name
    _model.__module__ = __name__
    globals()[_model.__name__] = _model

if TYPE_CHECKING:
    AlgorithmType = str
else:
    AlgorithmType = Literal[(*BUILT_IN, CUSTOM)]


class CustomAlgorithm(APIModel):
    """An algorithm of your own (docs/plugins.md). With spec.replay it learns from transitions, without from unrolls."""

    factory: Annotated[str, Text(253, '"module:factory" or "file.py:factory"', f"^{FACTORY_PATTERN}$")]
    """The function that makes it."""
    parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Its own parameters; ``rljob explain FACTORY`` lists them."""


class _Algorithm(APIModel):
    type: Annotated[AlgorithmType, never(ANOTHER)] = "PPO"
    """The algorithm. ApeXDQN and SAC (continuous actions) learn from spec.replay, IMPALA and PPO from unrolls."""
    custom: Annotated[CustomAlgorithm | None, never(ANOTHER)] = None
    """The algorithm of type Custom."""
    _own: Any = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _of_its_block(cls, given: Any) -> Any:
        """The type is that of the block beside it where none is written."""
        if not isinstance(given, Mapping) or "type" in given:
            return given
        of_block = (type_ for type_, name in BLOCKS.items() if given.get(name) is not None)
        found = next(of_block, None)
        return given if found is None else {**given, "type": found}

    @property
    def name(self) -> str:
        """What the data plane and checkpoints call it: its type, or the factory of a Custom one."""
        return self.custom.factory if self.type == CUSTOM and self.custom is not None else self.type

    @property
    def shared(self) -> dict[str, Any]:
        """The parameters that stand in this section itself, by their names in the manifest; none that is unset."""
        return {alias: value for alias, name in SHARED.items() if (value := getattr(self, name)) is not None}

    @property
    def section(self) -> APIModel:
        """The block of a built-in algorithm, written or not."""
        name = BUILT_IN[self.type].block
        return getattr(self, name) or _BLOCKS[name]()

    @property
    def given(self) -> dict[str, Any]:
        """All that is set of a built-in algorithm's parameters, by their names in the manifest."""
        section = self.section
        known = type(section).model_fields
        return self.shared | {known[name].alias or name: value for name, value in section if value is not None}

    @property
    def has_own_code(self) -> bool:
        """Whether it, or its network, is of the user's own."""
        return self.type == CUSTOM or ":" in str(getattr(self.parameters, "network", ""))

    @property
    def is_loaded(self) -> bool:
        """Whether its parameters are known: always, but for a Custom algorithm."""
        return self.type != CUSTOM or self._own is not None

    @property
    def parameters(self) -> Any:
        """All parameters of the algorithm, shared or its own: its parameter set. Raises TypeError for a Custom algorithm that was
        not loaded (`with_own`), and pydantic's ValidationError for values that another algorithm takes."""
        if self._own is not None:
            return self._own
        if self.type == CUSTOM:
            raise TypeError(f"the parameters of {self.name} are its own; they are known where it is loaded")
        kind = BUILT_IN[self.type].parameters
        known = names_in(kind)
        return kind.model_validate({alias: value for alias, value in self.given.items() if alias in known})

    def with_own(self: S, parameters: ParameterSet) -> S:
        """A copy of a Custom algorithm whose ``parameters`` are these, of its own type."""
        assert self.custom is not None, "a Custom algorithm has a factory"
        dumped = parameters.model_dump(mode="json", by_alias=True)
        own = {name: value for name, value in dumped.items() if name not in SHARED}
        custom = self.custom.model_copy(update={"parameters": own})
        bound = self.model_copy(update={"custom": custom, **_shared_in(parameters)})
        bound._own = parameters
        return bound

    def filled(self: S) -> S:
        """A copy with all defaults of its algorithm, where that is built in."""
        if self.type == CUSTOM:
            return self
        parameters, section = self.parameters, self.section
        unset = [name for name, value in section if value is None]
        own = section.model_copy(update={name: getattr(parameters, name) for name in unset})
        return self.model_copy(update={**_shared_in(parameters), BUILT_IN[self.type].block: own})

    def path_of(self, parameter: str) -> str:
        """Where a parameter, or what lies below it, stands below ``spec``: ``gamma`` -> ``algorithm.gamma``."""
        if parameter.partition(".")[0] in SHARED:
            return f"algorithm.{parameter}"
        return f"algorithm.{BLOCKS[self.type]}.{'parameters.' if self.type == CUSTOM else ''}{parameter}"


if TYPE_CHECKING:
    _Whole = _Algorithm
else:
    _OF_BLOCKS = {
        each.block: (
            Annotated[_BLOCKS[each.block] | None, WHILE_SUSPENDED],
            Field(default=None, description=each.about),
        )
        for each in BUILT_IN.values()
    }
    _Whole = create_model("_Whole", __base__=_Algorithm, **_FIELDS, **_OF_BLOCKS)


class AlgorithmSpec(_Whole):
    """Every hyper-parameter has a default. Those of several algorithms stand here; the block of an algorithm has its own."""


def _shared_in(parameters: ParameterSet) -> dict[str, Any]:
    fields = type(parameters).model_fields
    return {name: getattr(parameters, name) for name in SHARED.values() if name in fields}
