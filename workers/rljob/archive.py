"""A folder of a user's own as one file: what a job takes to a cluster, and what its pods unpack."""

import gzip
import hashlib
import os
import sys
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path
from typing import Final

from rljob.errors import CommandRefused, UsageError

ENTRY: Final = "code.tar.gz"
"""The archive in its ConfigMap."""
VARIABLE: Final = "RLJOB_CODE"
"""Names a pod's archive, ``<sha256 in hex>.tar.gz``."""
LARGEST_BYTES: Final = 1_000_000
"""Of an archive: a ConfigMap holds 1 MiB."""
IGNORED: Final = ".rljobignore"
"""A file of the folder with shell patterns, one a line, of names and paths that stay behind."""
_LARGEST_UNPACKED_BYTES: Final = 16_000_000
"""More is refused by the sizes of the files, before one is read."""
_MOST_FILES: Final = 5_000
_SHOWN: Final = 3
_NOT_CODE: Final = ("pyvenv.cfg", "job-effective.yaml")
"""Files of a virtual environment, and of the folder of a run."""
_LESS: Final = (
    f"the code of a job is the folder of its manifest: name in {IGNORED} there what the job does not read, and put large files "
    "into the image"
)


@dataclass(frozen=True, slots=True)
class Archive:
    """A packed folder: ``content`` is a tar archive compressed by gzip, ``names`` are the paths in it."""

    content: bytes
    names: Sequence[str]

    @property
    def digest(self) -> str:
        """The sha256 of the content, in hex. Equal files give an equal archive on one machine, whatever their times."""
        return hashlib.sha256(self.content).hexdigest()


def pack(folder: Path) -> Archive:
    """Pack the files of a folder, but for hidden ones, ``__pycache__``, virtual environments, runs, and what `IGNORED` names. A
    link inside stands for the file or folder that it leads to.

    Raises UsageError for a folder that is too large, before it is read, for a link that leaves it, and for an unreadable file.
    """
    found = dict[str, tuple[Path, int]]()
    try:
        for path in _files(folder, folder, (), _patterns(folder)):
            found[path.relative_to(folder).as_posix()] = path, path.stat().st_size
            if len(found) > _MOST_FILES:
                most, count = Counter(os.path.dirname(name) or "." for name in found).most_common(1)[0]
                raise UsageError(f"{folder}: more than {_MOST_FILES:,} files, {count:,} of them in {most!r}; {_LESS}")
        unpacked = sum(size for _, size in found.values())
        content = _packed(found) if unpacked <= _LARGEST_UNPACKED_BYTES else b""
    except OSError as error:
        raise UsageError(f"{error.filename}: can't be read: {error.strerror}; {_LESS}") from None
    if unpacked > _LARGEST_UNPACKED_BYTES or len(content) > LARGEST_BYTES:
        sizes = Counter({name: size for name, (_, size) in found.items()})
        for name in filter(os.path.dirname, found):  # many small files are seen by their folder
            sizes[f"{os.path.dirname(name)}/"] += found[name][1]
        packed = f", {len(content):,} compressed" if content else ""
        raise UsageError(
            f"{folder}: {unpacked:,} bytes in {len(found):,} files{packed}; allowed: {LARGEST_BYTES:,} compressed. The largest: "
            f"{', '.join(f'{name!r} ({size:,})' for name, size in sizes.most_common(_SHOWN))}; {_LESS}"
        )
    return Archive(content, sorted(found))


def _packed(found: dict[str, tuple[Path, int]]) -> bytes:
    out = BytesIO()
    with gzip.GzipFile("", "wb", 9, out, mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name in sorted(found):
            path = found[name][0]
            content, about = path.read_bytes(), tarfile.TarInfo(name)
            about.size, about.mode = len(content), 0o755 if os.access(path, os.X_OK) else 0o644
            tar.addfile(about, BytesIO(content))
    return out.getvalue()


def _patterns(folder: Path) -> list[str]:
    file = folder / IGNORED
    lines = [
        line.strip().rstrip("/")
        for line in (file.read_text(errors="surrogateescape").splitlines() if file.is_file() else ())
    ]
    if back := next((line for line in lines if line.startswith("!")), ""):
        raise UsageError(
            f"{file}: {back}: a pattern can't take files back in; write narrower ones, such as /data for the top alone"
        )
    return [line for line in lines if line and not line.startswith("#")]


def _files(folder: Path, at: Path, above: tuple[Path, ...], patterns: list[str]) -> Iterator[Path]:
    """The files in ``at``, a folder of ``folder`` that lies in the folders ``above``, which are whole paths without links."""
    above = (*above, at.resolve())
    for path in at.iterdir():
        name = path.relative_to(folder).as_posix()
        if path.name[0] == "." or name == "runs" or path.name == "__pycache__":
            continue
        if any(fnmatch(each, pattern) for pattern in patterns for each in (name, path.name, f"/{name}")):
            continue
        if path.is_symlink() and not (real := Path(os.path.realpath(path))).is_relative_to(above[0]):
            raise UsageError(f"{path}: a link to {real}, which is not in the folder; {_LESS}")
        if path.is_file():
            yield path
        elif path.is_dir() and not any(os.path.isfile(path / mark) for mark in _NOT_CODE):
            if path.resolve() in above:
                raise UsageError(f"{path}: a link to a folder that it lies in; {_LESS}")
            yield from _files(folder, path, above, patterns)


def unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the files of an archive into ``folder``, a whole path. Raises TarError where it has anything but files and folders
    inside. (Before Python 3.11.4 tarfile itself does not look.)"""
    for entry in tar:
        at = Path(os.path.normpath(folder / entry.name))
        if not at.is_relative_to(folder) or not (entry.isfile() or entry.isdir()):
            raise tarfile.TarError(f"{entry.name!r} is a link or leaves the folder")
        if source := tar.extractfile(entry):
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(source.read())
            at.chmod(entry.mode & 0o777 | 0o600)


def enter() -> None:
    """In a pod with an archive: unpack it, work there, and import what is in it.

    Raises UsageError for an archive that is not the one whose digest the job names, or that would write outside its folder, and
    CommandRefused where there is none yet.
    """
    if VARIABLE not in os.environ:
        return
    file = Path(os.environ[VARIABLE])
    wanted = file.name.partition(".")[0]
    if not file.is_file():
        where = f"spec.code.configMap: there is no such ConfigMap in the job's namespace, or it has no entry {ENTRY}"
        raise CommandRefused(where, 1)  # it may yet come: the role is started again, as after any failure
    if (digest := hashlib.sha256(file.read_bytes()).hexdigest()) != wanted:
        raise UsageError(f"spec.code.digest: sha256:{wanted}, and {ENTRY} in the ConfigMap has sha256:{digest}")
    folder = tempfile.mkdtemp(prefix="rljob-code-")
    try:
        with tarfile.open(file) as tar:
            unpack(tar, Path(folder))
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise UsageError(f"spec.code.configMap: {ENTRY} can't be unpacked: {error}") from None
    os.chdir(folder)
    sys.path.append(folder)
