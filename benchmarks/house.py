"""How large the house is, counted as the table in docs/architecture.md has it.

    python -m benchmarks.house [REVISION ...]

Without a revision the files as they are now are counted.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.common import report

ROOT = Path(__file__).parents[1]
HOUSE = ("workers", "operator")
CRDS = "manifests/crds/"


def counted(files: Iterable[tuple[str, str]]) -> dict[str, int]:
    """What there is of each. ``files``: (path below the checkout, text) of Python files, pages and CRDs; others count nothing."""
    found = dict.fromkeys(("statements", "files", "fields", "CRDs' kB", "words of pages", "statements of tests"), 0)
    for path, text in files:
        top = path.partition("/")[0]
        if path.endswith(".md"):
            found["words of pages"] += len(text.split())
        elif path.startswith(CRDS):
            found["CRDs' kB"] += -(-len(text) // 1000)
            if "rljobs" in path:
                schema = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
                found["fields"] += _leaves(schema["properties"]["spec"])
        elif path.endswith(".py") and top == "tests":
            found["statements of tests"] += statements(text)
        elif path.endswith(".py") and top in HOUSE:
            found["files"] += 1
            found["statements"] += statements(text)
    return found


def statements(source: str) -> int:
    """Statements of a file without its docstrings."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    return sum(not _is_text(node) for node in found)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _leaves(schema: Mapping[str, Any]) -> int:
    """Fields that have no fields; a list or a map is one."""
    return sum(map(_leaves, schema["properties"].values())) if "properties" in schema else 1


def here() -> Iterator[tuple[str, str]]:
    """The files of this checkout."""
    for top in (*HOUSE, "tests"):
        yield from _read(ROOT.glob(f"{top}/**/*.py"))
    yield from _read([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(f"{CRDS}*.yaml")])


def _read(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    return ((str(path.relative_to(ROOT)), path.read_text()) for path in paths)


def of_commit(revision: str) -> Iterator[tuple[str, str]]:
    """The same files of a commit."""
    packed = subprocess.run(["git", "archive", revision], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for entry in archive:
            top = entry.name.partition("/")[0]
            page = entry.name.endswith(".md") and (top == entry.name or top == "docs")
            if entry.isfile() and (page or entry.name.endswith(".py") or entry.name.startswith(CRDS)):
                content = archive.extractfile(entry)
                assert content is not None
                yield entry.name, content.read().decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*")
    revisions = parser.parse_args().revisions
    for revision in revisions:
        report("house", revision=revision, **counted(of_commit(revision)))
    if not revisions:
        report("house", revision="as it is", **counted(here()))


if __name__ == "__main__":
    main()
