"""The files that a manifest names, ``plugins/qr_dqn.py:make``, by where they are: a path is meant from the manifest's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PLACES = (
    ("environment", "id"),
    ("algorithm", "custom", "factory"),
    ("algorithm", "custom", "parameters", "network"),
    ("algorithm", "apeXDQN", "network"),
    ("algorithm", "impala", "network"),
)


def with_files_beside(written: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A copy of a job as written in ``folder`` whose files are named by their whole paths, so that every process of a run finds
    them wherever it works. A file that is not there stays as it is named: it may be a module in an image."""
    spec = written.get("spec")
    if not isinstance(spec, Mapping):
        return dict(written)
    found: Any = spec
    for place in _PLACES:
        found = _replaced(found, place, folder)
    return {**written, "spec": found}


def _replaced(node: Any, place: tuple[str, ...], folder: Path) -> Any:
    if not isinstance(node, Mapping) or place[0] not in node:
        return node
    name, value = place[0], node[place[0]]
    new = _whole(value, folder) if len(place) == 1 else _replaced(value, place[1:], folder)
    return node if new is value else {**node, name: new}


def _whole(value: Any, folder: Path) -> Any:
    path, _, factory = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not path.endswith(".py") or not (folder / path).is_file():
        return value
    return f"{(folder / path).resolve()}:{factory}"
