"""The house is as docs/architecture.md draws it: each room imports what its row allows, and there is no circle of files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT

PACKAGES = {"rljob": ROOT / "workers" / "rljob", "rljob_operator": ROOT / "operator" / "rljob_operator"}
TITLES = {"rljob": "### The data plane", "rljob_operator": "### The controller"}


def modules(package: str) -> dict[str, Path]:
    base = PACKAGES[package]
    found = {}
    for file in base.rglob("*.py"):
        parts = [package, *file.relative_to(base).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = modules("rljob") | modules("rljob_operator")


def imported(module: str) -> Iterator[str]:
    """Modules of ours that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{each.name}" for each in node.names]
            names = [name if name in MODULES else node.module for name in whole]
        yield from (name for name in names if name in MODULES and name != module)


IMPORTS = {module: set(imported(module)) for module in MODULES}


class Place(NamedTuple):
    """Where a module is: its package, and its room there (a folder, or a file beside the folders)."""

    package: str
    room: str


def place(module: str) -> Place:
    package, _, rest = module.partition(".")
    return Place(package, rest.split(".")[0])


def imports_of_rooms(package: str, of: str) -> dict[str, set[str]]:
    """Room of ``package`` -> other rooms, those of the package ``of``, that its files import from."""
    found: dict[str, set[str]] = {place(module).room: set() for module in modules(package)}
    del found[""]
    for module in modules(package):
        for other in IMPORTS[module]:
            if place(other).package == of and place(other) != place(module):
                found[place(module).room].add(place(other).room)
    return found


def table(package: str) -> dict[str, list[str]]:
    """Room -> the cells of its row after the first, in the table below the package's heading."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split(TITLES[package], 1)[1].split("\n#", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]
    return {room.strip("`"): cells for room, *cells in rows}


def words(cell: str) -> set[str]:
    return {word for word in cell.split(", ") if word}


TABLES = {package: table(package) for package in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_table_names_every_room(package: str) -> None:
    assert TABLES[package].keys() == imports_of_rooms(package, package).keys()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_room_imports_what_its_row_says_no_more_and_no_less(package: str) -> None:
    used = imports_of_rooms(package, package)
    assert {room: words(cells[-1]) for room, cells in TABLES[package].items()} == used


@pytest.mark.parametrize("package", PACKAGES)
def test_a_room_imports_only_from_rooms_that_stand_above_it(package: str) -> None:
    above: set[str] = set()
    for room, cells in TABLES[package].items():
        assert words(cells[-1]) <= above, f"{room} may import {sorted(words(cells[-1]) - above)}, which come later"
        above.add(room)


def test_a_room_of_the_controller_imports_what_its_row_says_of_the_data_plane() -> None:
    used = imports_of_rooms("rljob_operator", "rljob")
    assert {room: words(cells[-2]) for room, cells in TABLES["rljob_operator"].items()} == used


def test_the_data_plane_knows_no_controller() -> None:
    assert not any(imports_of_rooms("rljob", "rljob_operator").values())


@pytest.mark.parametrize("package", PACKAGES)
def test_no_files_import_each_other_in_a_circle(package: str) -> None:
    try:
        TopologicalSorter({module: IMPORTS[module] for module in modules(package)}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
