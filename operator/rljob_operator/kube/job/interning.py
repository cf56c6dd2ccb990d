"""Equal sections of many jobs' specs are kept once. Most sections are as a preset or a default has them.

The spec of a job takes 40 KB as typed sections, and 20 KB more as it stands in the status. Both are never changed, so jobs may
share them. A section that no job has any more is let go.
"""

import hashlib
import json
from typing import Any
from weakref import WeakValueDictionary

from pydantic import BaseModel
from rljob.api import RLJob
from rljob.api.status import RLJobStatus


class _Section(dict[str, Any]):
    """A mapping that weak references can point to, so that it goes once nothing else holds it."""

    __slots__ = ("__weakref__",)


class Interner:
    """Answers each section with the first one that was equal to it and is still in use; for one thread."""

    def __init__(self) -> None:
        self._models: WeakValueDictionary[tuple[Any, ...], BaseModel] = WeakValueDictionary()
        self._mappings: WeakValueDictionary[bytes, _Section] = WeakValueDictionary()

    def job(self, job: RLJob) -> RLJob:
        """The job with every section of its spec that another has, too."""
        spec = job.spec
        sections = {
            name: self._model(section)
            for name in type(spec).model_fields
            if isinstance(section := getattr(spec, name), BaseModel)
        }
        return job.model_copy(update={"spec": spec.model_copy(update=sections)})

    def status(self, status: RLJobStatus) -> RLJobStatus:
        """The status with every section of its effective spec that another has, too."""
        spec = status.effective_spec
        sections = {name: self._mapping(each) if isinstance(each, dict) else each for name, each in spec.items()}
        return status.model_copy(update={"effective_spec": sections})

    def __len__(self) -> int:
        """How many different sections are kept."""
        return len(self._models) + len(self._mappings)

    def _model(self, section: BaseModel) -> BaseModel:
        # What its user wrote of it is part of it: two that are equal may differ in that.
        place = type(section), _written(section), _digest(section.model_dump_json())
        return self._models.setdefault(place, section)

    def _mapping(self, section: dict[str, Any]) -> dict[str, Any]:
        place = _digest(json.dumps(section))
        found = self._mappings.get(place)
        if found is None:
            found = self._mappings[place] = _Section(section)
        return found


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _written(section: BaseModel) -> tuple[frozenset[str], tuple[Any, ...]]:
    """Which fields of a section, and of those below, its user wrote."""
    below = (each for name in type(section).model_fields if isinstance(each := getattr(section, name), BaseModel))
    return frozenset(section.model_fields_set), tuple(map(_written, below))
