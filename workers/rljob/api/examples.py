"""Manifests that come with rljob: the examples, by the names of their files, the rows of the zoo, and the presets."""

from collections.abc import Mapping, Sequence
from functools import cache
from os.path import exists
from pathlib import Path

from rljob.api.document import parse_document
from rljob.api.presets import PRESETS

ZOO = "zoo/"
"""Before the name of a row of the zoo: five seeds of settings for one environment, whose scores docs/zoo.md lists."""


@cache
def examples() -> dict[str, Path]:
    """Name -> manifest of each example that `rljob run` takes. Their folders are links in a checkout, so no ``**`` finds them."""
    folder = Path(__file__).parents[1] / "examples"
    found = {file.stem: file for way in ("[!z]*", "*/experiments") for file in sorted(folder.glob(f"{way}/*.yaml"))}
    return found | {f"{ZOO}{file.stem}": file for file in sorted(folder.glob(f"{ZOO}*.yaml"))}


def manifest_file(path: Path) -> Path:
    """``path``, or the example of that name where there is no such file."""
    return path if exists(path) else examples().get(str(path), path)


@cache
def by_environment() -> Mapping[str, Sequence[str]]:
    """Environment id -> the examples that train in it."""
    found: dict[str, list[str]] = {}
    for name, file in examples().items():
        spec = parse_document(file.read_bytes(), name)["spec"]
        spec = spec.get("template", {}).get("spec", spec)
        named = spec.get("environment", {}).get("id")
        found.setdefault(named or PRESETS[spec["preset"]].environment_id, []).append(name)
    return found


def examples_for(environment_id: str) -> Sequence[str]:
    """The examples that train in an environment, which may be named with the module that registers it."""
    known = by_environment()
    return known.get(environment_id, known.get(environment_id.rpartition(":")[2], ()))
