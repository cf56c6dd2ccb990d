"""Makes what tests share importable here: the files of tests/integration, and of the unit tests ``mutations`` and
``inference_parts``."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS / folder) for folder in ("integration", "unit/wire", "unit/inference")]
