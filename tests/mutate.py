"""`make mutate`: change one line of the code, run the tests that execute it, and tell whether one of them fails.

The unit tests, and those of the replay's log, which need a real Redis, run once with coverage, which notes the tests that execute
each line. Then changes are drawn by a seed. For each, a process that has imported torch already forks; its child imports the
changed module and runs those tests until one fails. The share of changes that a test catches says more about tests than the
share of lines that they execute.
"""

import argparse
import ast
import importlib.machinery
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import coverage

ROOT = Path(__file__).parent.parent
PLACES = {"rljob": ROOT / "workers" / "rljob", "rljob_operator": ROOT / "operator" / "rljob_operator"}
ROOMS = (
    "operator/rljob_operator/core",
    "workers/rljob/wire",
    "workers/rljob/replay",
    "workers/rljob/experience",
    "workers/rljob/algorithms",
)
SECONDS = 60.0
"""How long the tests of one change may run. They begin with those of the room that is changed."""
SURVIVED = 3
"""A child's exit code where no test failed."""
COMPARED = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "is": "is not", "is not": "is"}
COMPARED |= {"in": "not in", "not in": "in"}
COMPUTED = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*", "&": "|", "|": "&", "@": "+"}


class Change(NamedTuple):
    """One line of a file, ``start`` to ``end`` of which becomes ``new``. Columns count the bytes of UTF-8, as `ast` does."""

    path: Path
    line: int
    start: int
    end: int
    new: str

    def source(self) -> bytes:
        """The changed file."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.new.encode() + line[self.end :]
        return b"".join(lines)

    def __str__(self) -> str:
        old, new = (text.splitlines()[self.line - 1].strip() for text in (self.path.read_bytes(), self.source()))
        return f"{self.path.relative_to(ROOT)}:{self.line}: {old.decode()}  ->  {new.decode()}"


def changes(path: Path) -> Iterator[Change]:
    """Every change of one line that this tool knows, in the order of the file."""
    source = path.read_bytes()
    lines = source.splitlines()
    tree = ast.parse(source)
    skipped = {id(inner) for node in ast.walk(tree) for part in _not_run(node) for inner in ast.walk(part)}

    def replaced(node: ast.expr, new: str) -> Iterator[Change]:
        if node.lineno == node.end_lineno and node.end_col_offset is not None:
            yield Change(path, node.lineno, node.col_offset, node.end_col_offset, new)

    def between(left: ast.expr, right: ast.expr, words: dict[str, str]) -> Iterator[Change]:
        if left.end_lineno == right.lineno and left.end_col_offset is not None:
            gap = lines[right.lineno - 1][left.end_col_offset : right.col_offset].decode()
            word = gap.strip(" ()")
            if word in words:
                start = left.end_col_offset + gap.index(word)
                yield Change(path, right.lineno, start, start + len(word), words[word])

    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        match node:
            case ast.Compare():
                for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                    yield from between(left, right, COMPARED)
            case ast.BinOp():
                yield from between(node.left, node.right, COMPUTED)
            case ast.BoolOp():
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from between(left, right, {"and": "or", "or": "and"})
            case ast.UnaryOp(op=ast.Not()):
                yield Change(path, node.lineno, node.col_offset, node.operand.col_offset, "")
            case ast.Constant(value=bool()):
                yield from replaced(node, str(not node.value))
            case ast.Constant(value=int() | float()):
                yield from replaced(node, repr(node.value * 2 or 1))
            case ast.If() | ast.While() | ast.IfExp() if node.test.lineno == node.test.end_lineno:
                test = lines[node.test.lineno - 1][node.test.col_offset : node.test.end_col_offset]
                yield from replaced(node.test, f"(not ({test.decode()}))")
            case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
                yield from replaced(node.value, "None")
            case ast.Expr(value=ast.Call()):
                yield from replaced(node.value, "None")


def _not_run(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of ``node`` whose change no test is asked to see: types and messages."""
    match node:
        case ast.arg() | ast.AnnAssign() if node.annotation is not None:
            yield node.annotation
        case ast.FunctionDef() | ast.AsyncFunctionDef() if node.returns is not None:
            yield node.returns
        case ast.Raise() | ast.JoinedStr():
            yield node


def measured(tests: list[str], folder: Path) -> coverage.CoverageData:
    """Lines and the tests that execute them, from a run of ``tests`` whose data lie in ``folder`` afterwards."""
    file = folder / "coverage"
    if not file.exists():
        command = [sys.executable, "-m", "pytest", "-n", str(os.cpu_count()), *tests]
        command += [
            *(f"--cov={place}" for place in PLACES.values()),
            "--cov-context=test",
            "--cov-report=",
            "--timeout=600",  # noting every line takes its time
            "-p",
            "no:cacheprovider",
        ]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"COVERAGE_FILE": str(file)}, check=True)
    data = coverage.CoverageData(str(file))
    data.read()
    return data


def tests_of(change: Change, data: coverage.CoverageData) -> list[str]:
    """Tests that execute the line, those of the room first; for a line that an import executes, all of the room's."""
    contexts = data.contexts_by_lineno(str(change.path)).get(change.line, [])
    found = sorted({context.partition("|")[0] for context in contexts if context}, reverse=True)  # unit tests first
    place = next(place for place in PLACES.values() if place in change.path.parents)
    room = change.path.relative_to(place).parts[0]
    first = [test for test in found if f"/{room}/" in test]
    return first + [test for test in found if test not in set(first)]


def caught(change: Change, tests: list[str]) -> bool:
    """Whether a test fails with the change. Runs in a child of its own."""
    if not tests:
        return False
    place, folder = next(each for each in PLACES.items() if each[1] in change.path.parents)
    parts = [place, *change.path.relative_to(folder).with_suffix("").parts]
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    class Loader(importlib.machinery.SourceFileLoader):
        def get_code(self, fullname: str):
            return compile(change.source(), self.path, "exec", dont_inherit=True)

    class Finder:
        @staticmethod
        def find_spec(fullname: str, path: object = None, target: object = None):
            if fullname != module:
                return None
            return importlib.util.spec_from_file_location(
                fullname, change.path, loader=Loader(fullname, str(change.path))
            )

    sys.meta_path.insert(0, Finder)
    import pytest

    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    return (
        pytest.main(["-x", "-q", "--timeout=20", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", *tests])
        != 0
    )


def main() -> int:
    """Draw changes, try them two at a time, and print those that no test catches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="*", default=list(ROOMS), help="folders whose lines are changed")
    parser.add_argument("--tests", nargs="*", default=["tests/unit", "tests/integration/replay"])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutate", help="where coverage's data are kept")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    data = measured(options.tests, options.folder.resolve())
    every = [
        change for room in options.rooms for file in sorted((ROOT / room).rglob("*.py")) for change in changes(file)
    ]
    drawn = random.Random(options.seed).sample(every, min(options.changes, len(every)))
    for slow in ("gymnasium", "hypothesis", "pytest", "torch"):  # imported once for all children
        importlib.import_module(slow)
    waiting, running, survived = list(drawn), {}, []
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            change = waiting.pop(0)
            tests = tests_of(change, data)  # here: in a child coverage would begin its file again, empty
            child = os.fork()
            if child == 0:
                os.setsid()
                os._exit(0 if caught(change, tests) else SURVIVED)
            running[child] = change, time.monotonic() + SECONDS
        time.sleep(0.05)
        for child, (change, until) in list(running.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            late = not ended and time.monotonic() > until
            if late:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
            if not ended and not late:
                continue
            del running[child]
            outcome = "not ended" if late else "survived" if os.waitstatus_to_exitcode(status) == SURVIVED else "caught"
            print(f"{outcome:9} {change}", flush=True)
            if outcome != "caught":
                survived.append(change)
    print(
        f"{len(drawn) - len(survived)} of {len(drawn)} changes caught (of {len(every)} possible, seed {options.seed})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
