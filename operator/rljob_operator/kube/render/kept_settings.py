"""Which of the operator's settings a job keeps while it runs, and how its status remembers them. Pure."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from rljob_operator.kube.render.settings import Settings

AT_ONCE: Final = frozenset({"operator_namespaces", "prometheus_namespaces"})
"""Settings that no pod and no claim is made with: the newest ones count, also for a job that runs."""
_ELSEWHERE: Final = frozenset({"image", "gpu_image"})
"""Kept, too, in fields of their own (`rendering`)."""
KEPT: Final = tuple(each.name for each in fields(Settings) if each.name not in AT_ONCE | _ELSEWHERE)
"""All others: with them another pod of the job, a claim, its learner's files or its suspension would differ."""

_FORM: Final = TypeAdapter(Settings)
_REMEMBERED_AT_ONCE: Final = 64
"""Texts that are kept as they were read: all jobs that one operator has started have the same."""


def as_text(settings: Settings) -> str:
    """What a job's status keeps of the settings, as JSON."""
    found = _FORM.dump_python(settings, mode="json", include=set(KEPT))
    return json.dumps(found, separators=(",", ":"), sort_keys=True)


def with_kept(settings: Settings, text: str) -> Settings:
    """``settings`` with those that ``text`` has and this release knows; a text that can't be read has none."""
    return replace(settings, **_read(text))


@lru_cache(_REMEMBERED_AT_ONCE)
def _read(text: str) -> Mapping[str, Any]:
    try:
        written = json.loads(text)
        known = {name: written[name] for name in KEPT if name in written}
        found = _FORM.validate_python({"image": "of no matter", **known})
    except (ValidationError, ValueError, TypeError):
        return {}
    return {name: getattr(found, name) for name in known}
