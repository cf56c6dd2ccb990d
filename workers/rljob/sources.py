"""A user's files: the paths that people write, and the copies that a run keeps of those that it was started with."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rljob.errors import UsageError
from rljob.loading import short

CODE: Final = "code"
"""The folder of a run with its copies."""
ENCODER: Final = ".safetensors"
"""How the name of an encoder's file ends."""
_PLACES: Final = ".places.json"
_DIGEST_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Source:
    """A file of a user's own: of Python, or an encoder.

    Attributes:
        name: its path in the folder from which it is imported, such as ``env.py`` or ``games/env.py``.
        place: where it was found, a whole path in which links are kept.
        copy: the run's copy, as it was when the run was last started.
    """

    name: str
    place: Path
    copy: Path

    @property
    def digest(self) -> str:
        """The beginning of the sha256 (hex) of the copy; two files with the same name and digest are the same."""
        return hashlib.sha256(self.copy.read_bytes()).hexdigest()[:_DIGEST_DIGITS]


def user_path(text: str | os.PathLike[str]) -> Path:
    """The path that a person has written, with ``~`` and ``~user`` expanded. Raises UsageError for an unknown user."""
    expanded = os.path.expanduser(text)
    if str(expanded).startswith("~"):
        name = str(expanded).partition("/")[0]
        raise UsageError(f"{expanded}: there is no user {name[1:]} here; a file of this name is ./{expanded}")
    return Path(expanded)


def sources_of(run_dir: Path) -> list[Source]:
    """The copies in ``run_dir``; none where it has none."""
    folder = run_dir.absolute() / CODE
    try:
        places: Mapping[str, str] = json.loads((folder / _PLACES).read_text())
        return [Source(name, Path(place), folder / name) for name, place in places.items() if (folder / name).is_file()]
    except (OSError, ValueError, AttributeError):
        return []


def keep_sources(run_dir: Path, files: Mapping[str, Path]) -> list[str]:
    """Copy ``files`` (name -> path: those that `rljob.loading.files_loaded` answers, and encoders) into ``run_dir``. Answers what
    to say about those that are not what an earlier start copied. Raises OSError."""
    known = {source.name: source for source in sources_of(run_dir)}
    notes = _notes([(known[name], path) for name, path in files.items() if name in known])
    for name, path in files.items():
        if path != (copy := run_dir.absolute() / CODE / name):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
            known[name] = Source(name, path, copy)
    if files:
        places = {name: str(known[name].place) for name in files}
        (run_dir / CODE / _PLACES).write_text(json.dumps(places, indent=2) + "\n")
    return notes


def notes_on(run_dir: Path) -> list[str]:
    """What to say where the files of the run in ``run_dir`` are loaded now: which are gone, and which were edited."""
    return _notes([(one, one.place if one.place.is_file() else one.copy) for one in sources_of(run_dir)])


def _notes(used: list[tuple[Source, Path]]) -> list[str]:
    gone = [source for source, path in used if path == source.copy]
    edited = [source for source, path in used if path.read_bytes() != source.copy.read_bytes()]
    words = (
        (gone, "not where the run found it any more; its copy is used"),
        (edited, "not as the run was last started with it; it is used as it is now"),
    )
    return [
        f"{', '.join(source.name for source in found)}: {found[0].place} is {said} (the run's copies: {found[0].copy.parent})"
        for found, said in words
        if found
    ]


def to_load(name: str, run_dir: Path) -> str:
    """``/home/me/env.py:make``, or an encoder's file, as it is to be loaded for the run in ``run_dir``: from its copy where the
    file is gone."""
    path, colon, factory = (name, "", "") if name.endswith(ENCODER) else name.rpartition(":")
    if not path.endswith((".py", ENCODER)) or Path(path).is_file():
        return name
    same = [each for each in sources_of(run_dir) if each.copy.name == Path(path).name]
    same.sort(key=lambda each: str(each.place) != path)
    return f"{same[0].copy}{colon}{factory}" if same else name


def with_files(value: Any, change: Callable[[str], str], before: Any = None) -> Any:
    """A copy of a manifest, or of a part of it, with ``change`` made to each text that may name a file: keyword arguments stay as
    they are, and so do images, and what stands in ``before``, too."""
    if isinstance(value, Mapping):
        old = before if isinstance(before, Mapping) else {}
        return {
            key: item if {"kwargs", "image"} & {*str(key).split(".")} else with_files(item, change, old.get(key))
            for key, item in value.items()
        }
    if isinstance(value, list) and value != before:
        return [with_files(item, change) for item in value]
    return change(value) if isinstance(value, str) and value != before else value


def without_places(value: Any) -> Any:
    """A value of a manifest with its files named by what they are, ``env.py:make``, in place of where they are."""
    return with_files(value, lambda text: Path(text).name if text.endswith(ENCODER) else short(text))
