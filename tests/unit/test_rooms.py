"""The house is as docs/architecture.md draws it: each room imports what its row allows, and there is no circle of files."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT

PACKAGES = {"rljob": ROOT / "workers" / "rljob", "rljob_operator": ROOT / "operator" / "rljob_operator"}
HOUSES = PACKAGES | {"rljob_operator.kube": PACKAGES["rljob_operator"] / "kube"}
"""What has a table of its rooms: the two packages, and a room that is large enough to have rooms itself."""
TITLES = {
    "rljob": "### The data plane",
    "rljob_operator": "### The controller",
    "rljob_operator.kube": "### The rooms of `kube`",
}


def modules(house: str) -> dict[str, Path]:
    base = HOUSES[house]
    found = {}
    for file in base.rglob("*.py"):
        parts = [house, *file.relative_to(base).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = modules("rljob") | modules("rljob_operator")
OF_THE_MANIFEST = re.compile(r"rljob\.algorithms\.(built_in|preset_jobs|\w+\.(parameters|presets|rules))")
"""The half of the folder ``algorithms`` that is in the room ``api``: what the manifest knows of each algorithm."""
BY_CONVENTION = {
    "rljob.algorithms.built_in": "",
    "rljob.api.rules": ".rules",
    "rljob.algorithms.registry": ".loss",
}
"""A module -> the module that it imports of the folder of each algorithm (`rljob.algorithms.built_in.parts`)."""
FOLDERS = [module.removesuffix(".loss") for module in MODULES if re.fullmatch(r"rljob\.algorithms\.\w+\.loss", module)]


def imported(module: str) -> Iterator[str]:
    """Modules of ours that a module imports, anywhere in it."""
    if module in BY_CONVENTION:
        yield from {f"{folder}{BY_CONVENTION[module]}" for folder in FOLDERS} & MODULES.keys()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{each.name}" for each in node.names]
            names = [name if name in MODULES else node.module for name in whole]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"(rljob[\w.]+)(:\w+)+", str(node.value)):
            names = [str(node.value).partition(":")[0]]  # a command's place, imported when it is asked for
        yield from (name for name in names if name in MODULES and name != module)


IMPORTS = {module: set(imported(module)) for module in MODULES}


class Place(NamedTuple):
    """Where a module is: its house, and its room there (a folder, or a file beside the folders)."""

    house: str
    room: str


def place(module: str, house: str) -> Place | None:
    """None for a module of another house."""
    if module != house and not module.startswith(f"{house}."):
        return None
    if module in FOLDERS or OF_THE_MANIFEST.fullmatch(module):
        return Place(house, "api")
    return Place(house, module[len(house) + 1 :].split(".")[0])


def imports_of_rooms(house: str, of: str) -> dict[str, set[str]]:
    """Room of ``house`` -> other rooms, those of the house ``of``, that its files import from."""
    homes = {module: place(module, house) for module in modules(house)}
    found: dict[str, set[str]] = {home.room: set() for home in homes.values() if home is not None and home.room}
    for module, home in homes.items():
        for other in IMPORTS[module]:
            there = place(other, of)
            # The door of a house (its ``__init__``) is in no room: what it names comes from one.
            if home is not None and home.room and there is not None and there != home:
                found[home.room].add(there.room)
    return found


def table(house: str) -> dict[str, list[str]]:
    """Room -> the cells of its row after the first, in the table below the house's heading."""
    section = (ROOT / "docs" / "architecture.md").read_text().split(TITLES[house], 1)[1].split("\n#", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]
    return {room.strip("`"): cells for room, *cells in rows}


def words(cell: str) -> set[str]:
    return {word for word in cell.split(", ") if word}


TABLES = {house: table(house) for house in HOUSES}


@pytest.mark.parametrize("house", HOUSES)
def test_the_table_names_every_room(house: str) -> None:
    assert TABLES[house].keys() == imports_of_rooms(house, house).keys()


@pytest.mark.parametrize("house", HOUSES)
def test_a_room_imports_what_its_row_says_no_more_and_no_less(house: str) -> None:
    assert {room: words(cells[-1]) for room, cells in TABLES[house].items()} == imports_of_rooms(house, house)


@pytest.mark.parametrize("house", HOUSES)
def test_a_room_imports_only_from_rooms_that_stand_above_it(house: str) -> None:
    above: set[str] = set()
    for room, cells in TABLES[house].items():
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
