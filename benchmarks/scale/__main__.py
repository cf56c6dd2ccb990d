"""Run one row: `python -m benchmarks.scale ROW [options]`; `ROW --help` has its options."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

_HELPERS = ("__init__", "__main__", "links", "receivers")
ROWS = sorted(each.stem for each in Path(__file__).parent.glob("*.py") if each.stem not in _HELPERS)


def main() -> None:
    if sys.argv[1:2] == [] or sys.argv[1] not in ROWS:
        raise SystemExit(f"python -m benchmarks.scale ROW [options]; rows: {', '.join(ROWS)}")
    row = sys.argv.pop(1)
    runpy.run_module(f"benchmarks.scale.{row}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
