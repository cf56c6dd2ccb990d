"""The documents that a user reads, what stands in them, and the files that docs/plugins.md tells its reader to write."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

TUTORIALS = ROOT / "docs" / "tutorials"
LOGS = ROOT / "docs" / "performance"
"""What was measured when, in the words of its day."""
DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGE = ROOT / "docs" / "plugins.md"


def prose(document: Path) -> str:
    """Without its blocks of code, in which brackets and hashes mean something else."""
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def blocks(document: Path, language: str) -> Iterator[str]:
    """Its blocks of code in a language, as ``sh``."""
    return (text for name, text in _BLOCK.findall(document.read_text()) if name == language)


def inline_code(document: Path) -> Iterator[str]:
    """What stands between backticks in its sentences and tables."""
    return (text for text in re.findall(r"`([^`\n]+)`", prose(document)))


def followed(page: Path, folder: Path, **environment: str) -> str:
    """What the blocks of shell and of Python of a page print, typed one after the other in ``folder``."""
    lines = ["set -euxo pipefail"]
    for language, text in _BLOCK.findall(page.read_text()):
        if language in ("sh", "python"):
            lines.append(text if language == "sh" else f"python <<'THE END'\n{text}THE END\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=folder, env={**os.environ, **environment, "PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


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
