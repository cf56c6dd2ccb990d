"""What presets set at one place of a manifest, for documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rljob.api.presets import PRESETS


def values_at(path: str) -> Mapping[str, Any]:
    """Preset -> the value that it sets at ``path`` (``spec.algorithm.impala.learningRate``), of those that set one. Lists are
    values; sections are not."""
    return _by_path().get(path, {})


def paths() -> Iterator[str]:
    """Every place that a preset sets, in the order in which presets do."""
    yield from _by_path()


def is_set(path: str) -> bool:
    """Whether any preset sets ``path``, or something below it."""
    return path in _by_path() or any(known.startswith(f"{path}.") for known in _by_path())


@cache
def _by_path() -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, preset in PRESETS.items():
        for path, value in _leaves(preset.spec, "spec"):
            found.setdefault(path, {})[name] = value
    return found


def _leaves(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}.{key}")
        else:
            yield f"{path}.{key}", value
