"""The files that a job names: by their whole paths on this machine, and in the folder that it takes to a cluster."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from rljob.api.examples import manifest_file
from rljob.api.load import read_document
from rljob.api.overrides import Override, apply_overrides, read_overrides
from rljob.archive import IGNORED, Archive, pack
from rljob.errors import UsageError
from rljob.sources import ENCODER, with_files

_URI: Final = "file://"
_OF_A_MODULE: Final = re.compile(r"([A-Za-z_]\w*)[\w.]*:[A-Za-z_][\w.-]*")


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
    return dict(with_files(written, partial(_whole, folder), before))


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


def spec_of_job(written: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a job as written, or of the jobs of an experiment: a part of ``written``, and no copy."""
    found: dict[str, Any] = written["spec"].get("template", written)["spec"]
    return found


def with_code(written: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], Archive | None]:
    """A job or an experiment of ``folder`` for a cluster, and what it takes there: the folder, where a file or a module of it is
    named; else None, also where the manifest has a ``code`` of its own.

    ``written``: with whole paths, as `as_found` answers. In the result files are named from the folder. Raises UsageError for
    one outside, unless the job has an image, which may have it, and as `pack`.
    """
    folder, named, spec = Path(os.path.abspath(folder)), set[str](), spec_of_job(written)

    def inside(value: str) -> str:
        path, colon, factory = value.rpartition(":") if ".py:" in value else (value, "", "")
        if (factory or value.endswith(ENCODER)) and os.path.isabs(path) and os.path.isfile(path):
            if Path(path).is_relative_to(folder):
                name = Path(path).relative_to(folder).as_posix()
                named.add(name)
                return f"{name}{colon}{factory}"
            if not spec.get("image"):
                raise UsageError(
                    f"{value}: not in {folder}, the folder of the manifest, which is all that a job takes to a cluster; move the "
                    "file there, or put it into an image and name that in spec.image"
                )
        elif module := _OF_A_MODULE.fullmatch(value):
            top = folder / module[1]
            named.update({f"{top.name}.py"} if top.with_suffix(".py").is_file() else {top.name} if top.is_dir() else ())
        return value

    found = dict(with_files(written, inside))
    if not named or spec.get("code"):
        return found, None
    code = pack(folder)
    if left := {each for each in named if not any(f"{name}/".startswith(f"{each}/") for name in code.names)}:
        raise UsageError(f"{folder / min(left)}: hidden or in {IGNORED}, so the job would not find it; rename it")
    return found, code
