"""The files that docs/plugins.md tells its reader to write, as they stand there."""

from __future__ import annotations

from pathlib import Path

from tests.support.documents import blocks
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "plugins.md"


def block(language: str, mark: str) -> str:
    """The block of code in a language that has ``mark`` in it."""
    (found,) = [text for text in blocks(PAGE, language) if mark in text]
    return found


def write_example(folder: Path) -> Path:
    """``soft_q.py`` and ``soft_q.yaml`` in ``folder``; answers the manifest."""
    (folder / "soft_q.py").write_text(block("python", "class SoftQ("))
    (folder / "soft_q.yaml").write_text(block("yaml", "{name: soft-q}"))
    return folder / "soft_q.yaml"


def write_environment(folder: Path) -> Path:
    """``corridor.py`` and ``corridor.yaml`` in ``folder``; answers the manifest."""
    (folder / "corridor.py").write_text(block("python", "class Corridor("))
    (folder / "corridor.yaml").write_text(block("yaml", "{name: corridor}"))
    return folder / "corridor.yaml"


def write_package(folder: Path) -> Path:
    """``corridor.py`` with its ``pyproject.toml`` in ``folder``, which is answered: what ``pip install`` takes."""
    write_environment(folder)
    (folder / "pyproject.toml").write_text(block("toml", 'name = "corridor"'))
    return folder
