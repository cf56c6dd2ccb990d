"""What every page has in common: templates that escape all texts, and a file that is replaced in one step."""

from __future__ import annotations

import os
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def page_environment(*packages: str) -> Environment:
    """Templates of ``packages`` and, for what all pages share, of this one."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "rljob.telemetry")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write_page(path: Path, page: str) -> None:
    """Write, then rename, so that a reader sees the page before or this one. Raises OSError."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(page, encoding="utf-8")
    os.replace(partial, path)
