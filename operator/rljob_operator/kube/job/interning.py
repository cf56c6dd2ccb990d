"""Equal sections of many jobs' specs are kept once. Most sections are as a preset or a default has them.

The spec of a job takes 40 KB as typed sections. They are never changed, so jobs may share them. A section that no job has any
more is let go.
"""

import hashlib
from typing import Any
from weakref import WeakValueDictionary

from pydantic import BaseModel
from rljob.api import RLJob


class Interner:
    """Answers each section with the first one that was equal to it and is still in use; for one thread."""

    def __init__(self) -> None:
        self._models: WeakValueDictionary[tuple[Any, ...], BaseModel] = WeakValueDictionary()

    def job(self, job: RLJob) -> RLJob:
        """The job with every section of its spec that another has, too."""
        spec = job.spec
        sections = {
            name: self._model(section)
            for name in type(spec).model_fields
            if isinstance(section := getattr(spec, name), BaseModel)
        }
        return job.model_copy(update={"spec": spec.model_copy(update=sections)})

    def __len__(self) -> int:
        """How many different sections are kept."""
        return len(self._models)

    def _model(self, section: BaseModel) -> BaseModel:
        # What its user wrote of it is part of it: two that are equal may differ in that.
        digest = hashlib.sha256(section.model_dump_json().encode()).digest()
        return self._models.setdefault((type(section), _written(section), digest), section)


def _written(section: BaseModel) -> tuple[frozenset[str], tuple[Any, ...]]:
    """Which fields of a section, and of those below, its user wrote."""
    below = (each for name in type(section).model_fields if isinstance(each := getattr(section, name), BaseModel))
    return frozenset(section.model_fields_set), tuple(map(_written, below))
