"""What the manifest knows of a built-in algorithm: all of it is declared in the algorithm's folder, ``rljob.algorithms.NAME``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from rljob.api.parameters import LearnerParameterSet
from rljob.api.preset import Preset

Field = tuple[type[BaseModel], str]
"""A field of a section, by its Python name."""


class Computed(NamedTuple):
    """A default that follows from other fields: in words, and as a function of the job's `RLJobSpec`."""

    words: str
    value: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A built-in algorithm.

    Attributes:
        name: ``spec.algorithm.type``, and the class in its ``loss.py``.
        block: the field below ``spec.algorithm`` of what it alone has.
        about: what the block holds, with the publication.
        parameters: all that it is set by, shared parameters too.
        networks: its networks by name, and the least height and width that each sees (`rljob.api.networks`); none where
            ``network`` is no parameter of it.
        takes: as ``rljob.algorithms.base.Algorithm.takes``.
        from_replay: it learns from transitions, which spec.replay holds; else from unrolls.
        elsewhere: what others call it or something like it.
        defaults: fields beside its parameters whose default is another one with it, or that follow from others with it alone
            (`rljob.api.effective`): a value, or what it follows from.
        presets: jobs that it learns.
    """

    name: str
    block: str
    about: str
    parameters: type[LearnerParameterSet]
    networks: Mapping[str, int] = field(default_factory=dict)
    takes: frozenset[str] = frozenset()
    from_replay: bool = False
    elsewhere: tuple[str, ...] = ()
    defaults: Mapping[Field, Any] = field(default_factory=dict)
    presets: tuple[Preset, ...] = ()
