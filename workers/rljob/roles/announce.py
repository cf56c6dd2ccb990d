"""What a role leaves in the run folder for others: where it can be watched, and what it was at its end."""

import logging
import os
from pathlib import Path
from typing import Any

from rljob.files import replace
from rljob.roles.options import RoleOptions
from rljob.strict_json import dumps

log = logging.getLogger(__name__)


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
    """Write the role's last status as ``roles/<name>.final.json`` of the run folder, on a clean exit."""
    _write(options.run_dir / "roles" / f"{options.name}.final.json", document)


def write_last_words(options: RoleOptions, document: dict[str, Any]) -> None:
    """Write ``options.last_words`` (if given) at the end of a process, which can't be asked any more then. What can't be
    written is only logged: the end is none the worse."""
    if options.last_words is None:
        return
    try:
        # In a pod the file is a mount, in whose place no other can be put.
        options.last_words.write_text(dumps(document) + "\n")
    except OSError as error:
        log.warning("%s: last words can't be written: %s", options.last_words, error.strerror)


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        replace(path, dumps(document) + "\n")
    except OSError as error:
        raise OSError(error.errno, f"{path} can't be written: {error.strerror}") from error
