"""Places of this project."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
SUPPORT = ROOT / "tests" / "support"
IMPORTABLE = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
"""For the environment of a process that imports games from ``tests.support`` or ``benchmarks``."""
