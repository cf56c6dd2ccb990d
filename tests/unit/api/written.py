"""Documents as a user of kubectl would write them, from the tables and examples that tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rljob.api import RLJob, dump_manifest, load_manifest
from rljob.api.document import parse_document
from rljob.api.effective import effective as with_defaults
from rljob.api.overrides import apply_overrides, read_overrides
from rljob.api.presets.merging import with_preset
from rljob.api.structure import without_nulls

from tests.support import paths

EXAMPLES = paths.MANIFESTS
CLUSTER = next(file for file in EXAMPLES if file.stem == "pong-apex-cluster")


def document(file: Path, overrides: list[str] | tuple[str, ...] = ()) -> dict[str, Any]:
    """The document as written, and overridden."""
    written = parse_document(file.read_bytes(), file.name)
    return apply_overrides(written, read_overrides(overrides, written))


def in_force(job: RLJob) -> dict[str, Any]:
    """The document with every field written: the preset's values and all defaults."""
    return parse_document(dump_manifest(job).encode(), "the job in force")


def effective(file: Path, overrides: list[str] | tuple[str, ...] = ()) -> dict[str, Any]:
    """The same of a manifest whose fields break rules between them. Where one is wrong by itself, it stands in a good job."""
    written = without_nulls(document(file, overrides))
    try:
        job = RLJob.model_validate(with_preset(written), by_alias=True, by_name=False)
    except ValidationError:
        job = in_force(load_manifest(file))
        return apply_overrides(job, read_overrides(overrides, job))
    return in_force(with_defaults(job, written))
