"""The files that a job names, by their whole paths."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from rljob.api.examples import manifest_file
from rljob.api.load import read_document
from rljob.api.overrides import Override, apply_overrides, read_overrides
from rljob.sources import ENCODER, with_files

_URI: Final = "file://"


def read_with_files(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """As `read_document`, with files named by their whole paths as `as_found` says."""
    document = read_document(path)
    return as_found(document, read_overrides(overrides, document), manifest_file(path).parent)


def as_found(written: Mapping[str, Any], overrides: Sequence[Override], folder: Path) -> dict[str, Any]:
    """`with_files_beside` of a job of ``folder`` with ``overrides``, whose files are meant from the working directory, or else
    from ``folder``."""
    before = with_files_beside(written, folder)
    changed = apply_overrides(before, overrides)
    return with_files_beside(with_files_beside(changed, Path(), before), folder)


def with_files_beside(
    written: Mapping[str, Any], folder: Path, before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A copy of a job as written in ``folder`` whose files are named by their whole paths, with ``~`` expanded and links kept, so
    that every process of a run finds them wherever it works. A file that is not there stays as it is named: it may be a module in
    an image. ``before``: what stands there, too, stays as it is."""
    found: dict[str, Any] = with_files(written, partial(_whole, folder), before)
    return found


def _whole(folder: Path, value: str) -> str:
    text = value.removeprefix(_URI) if value.startswith(f"{_URI}~") else value
    path, colon, factory = text.rpartition(":") if ".py:" in text else (text, "", "")
    expanded = os.path.expanduser(path)
    at = folder / expanded
    if (factory or path.endswith(ENCODER)) and (at.is_file() or expanded != path):
        return f"{_tidy(at)}{colon}{factory}"
    return at.as_uri() if expanded != path and (text != value or at.is_dir()) else value


def _tidy(path: Path) -> Path:
    """The whole path without ``..``, unless they lead elsewhere behind a link."""
    tidy = Path(os.path.abspath(path))
    return path.absolute() if path.exists() and not (tidy.exists() and tidy.samefile(path)) else tidy
