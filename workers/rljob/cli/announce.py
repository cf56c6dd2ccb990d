"""What a role leaves in the run folder for others: where it can be watched, and what it was at its end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rljob.cli.options import RoleOptions


def announce(options: RoleOptions, role: str, metrics_url: str, incarnation: str) -> None:
    """Write ``options.announce`` (if given): ``{"role", "name", "pid", "metrics_url", "incarnation"}`` as JSON.

    The file appears whole or not at all. Call it once the telemetry server listens.
    """
    path = options.announce
    if path is None:
        return
    document = {
        "role": role,
        "name": options.name,
        "pid": os.getpid(),
        "metrics_url": metrics_url,
        "incarnation": incarnation,
    }
    _write(path, document)


def write_final(options: RoleOptions, document: dict[str, Any]) -> None:
    """Write the role's last word as ``roles/<name>.final.json`` of the run folder, on a clean exit."""
    _write(options.run_dir / "roles" / f"{options.name}.final.json", document)


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(document) + "\n")
    partial.replace(path)
