"""``rljob keys FOLDER``: the CURVE keys of a job whose roles run on several machines."""

from pathlib import Path
from typing import Annotated

import typer

from rljob.errors import UsageError
from rljob.files import replacing


def keys(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to create for the files.", show_default=False)
    ],
) -> None:
    """Make the keys of a job whose roles talk over tcp:// beyond one machine.

    Writes FOLDER/ROLE.json for each role: its own secret and the public keys of all. Copy to a machine only the files of its
    roles, for `rljob worker ROLE --keys FOLDER/ROLE.json`. Only their owner can read the files. FOLDER must not exist yet: keys
    are never replaced. Use one folder per job; any holder of one of its files can join that job.

    Example:

        rljob keys pong-keys
    """
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder}: exists already, and keys are never replaced; name a folder that does not exist")
    if not folder.parent.is_dir():
        raise UsageError(f"{folder}: there is no folder {folder.parent}; create it first")

    from rljob.wire.security import ROLES, write_keys, write_role_keys

    try:
        with replacing(folder) as work:  # all files or none
            work.mkdir(mode=0o700)
            everyones = work / "all.json"
            write_keys(everyones)
            for role in ROLES:
                write_role_keys(everyones, work / f"{role}.json", role)
            everyones.unlink()
    except OSError as error:
        raise UsageError(f"{folder}: can't be written: {error.strerror}") from error
    for role in ROLES:
        typer.echo(f"{folder / role}.json")
