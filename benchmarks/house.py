"""How large the house is: lines, statements and files of `workers` and `operator`, statements of `tests`, pages of documentation.

    python -m benchmarks.house [REVISION ...]

A statement is an ``ast.stmt`` that is no docstring. Without a revision that of the present commit is counted, as with HEAD.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter

from benchmarks.common import report

HOUSE = ("workers", "operator")


def statements(source: str) -> int:
    """Statements of a file without its docstrings."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    return sum(not _is_text(node) for node in found)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def counted(revision: str) -> Counter[str]:
    """What there is of each in the commit ``revision``."""
    packed = subprocess.run(["git", "archive", revision], stdout=subprocess.PIPE, check=True).stdout
    found: Counter[str] = Counter()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for entry in archive:
            if not entry.isfile():
                continue
            top, is_page = entry.name.partition("/")[0], entry.name.endswith(".md")
            found["pages"] += is_page
            if not entry.name.endswith(".py") or top not in (*HOUSE, "tests"):
                continue
            content = archive.extractfile(entry)
            assert content is not None
            source = content.read().decode()
            found[f"{top}_statements"] += statements(source)
            if top in HOUSE:
                found["files"] += 1
                found["lines"] += source.count("\n")
                found["statements"] += statements(source)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*", default=["HEAD"])
    for revision in parser.parse_args().revisions:
        report("house", revision=revision, **counted(revision))


if __name__ == "__main__":
    main()
