"""Manifests that come with rljob: the examples, by the names of their files, and the presets."""

from functools import cache
from os.path import exists
from pathlib import Path


@cache
def examples() -> dict[str, Path]:
    """Name -> manifest of each example that `rljob run` takes. Their folders are links in a checkout, so no ``**`` finds them."""
    folder = Path(__file__).parents[1] / "examples"
    return {file.stem: file for way in ("*", "*/experiments") for file in sorted(folder.glob(f"{way}/*.yaml"))}


def manifest_file(path: Path) -> Path:
    """``path``, or the example of that name where there is no such file."""
    return path if exists(path) else examples().get(str(path), path)
