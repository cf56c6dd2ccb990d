"""The documents that a user reads, and what stands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

LOGS = ROOT / "docs" / "performance"
"""What was measured when, in the words of its day."""
DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def prose(document: Path) -> str:
    """Without its blocks of code, in which brackets and hashes mean something else."""
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def blocks(document: Path, language: str) -> Iterator[str]:
    """Its blocks of code in a language, as ``sh``."""
    return (text for name, text in _BLOCK.findall(document.read_text()) if name == language)


def inline_code(document: Path) -> Iterator[str]:
    """What stands between backticks in its sentences and tables."""
    return (text for text in re.findall(r"`([^`\n]+)`", prose(document)))
