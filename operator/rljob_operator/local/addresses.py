"""The addresses of the roles of one local run.

Unix sockets are in a short folder of their own, removed with the run. A token lets the learner be asked for a checkpoint,
wherever it listens.
"""

import json
import os
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rljob.files import socket_folder

from rljob_operator.local.run_folder import write_json

_FILE = "addresses.json"
TOKEN_FILE = "roles/request-token"
"""In the run folder: the token that requests to the learner need."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """ZeroMQ endpoints of one run; shard k of the replay service has entry k of each tuple."""

    folder: Path
    replay_ingest: tuple[str, ...]
    replay_sample: tuple[str, ...]
    weights: str
    notice: str
    inference: tuple[str, ...] = ()

    @classmethod
    def of(cls, run_dir: Path, shards: int, inference_servers: int = 0) -> Self:
        """Endpoints in a private folder, the same one for every controller of this run as long as it is there.

        A run folder's own path may be too long for a unix socket (107 characters), so the folder is a temporary one and
        ``roles/addresses.json`` says which. Raises NoSocketFolder.
        """
        record = run_dir / "roles" / _FILE
        folder = _recorded(record)
        if folder is None:
            folder = socket_folder("rljob-")
            write_json(record, {"folder": str(folder)})
        return cls(
            folder=folder,
            replay_ingest=tuple(f"ipc://{folder}/ingest-{k}" for k in range(shards)),
            replay_sample=tuple(f"ipc://{folder}/sample-{k}" for k in range(shards)),
            weights=f"ipc://{folder}/weights",
            notice=f"ipc://{folder}/notice",
            inference=tuple(f"ipc://{folder}/inference-{k}" for k in range(inference_servers)),
        )

    def remove(self) -> None:
        """Delete the folder; the sockets in it are gone already or die with it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _recorded(record: Path) -> Path | None:
    """The folder of an earlier controller if it is still there and this user's; in a shared /tmp a name can be taken."""
    try:
        folder = Path(json.loads(record.read_text())["folder"])
        found = folder.lstat()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # Only the permissions: below a folder with the set-group-ID bit (a pod's volume with fsGroup) a new one has that bit too.
    private = stat.S_ISDIR(found.st_mode) and found.st_mode & 0o777 == 0o700
    return folder if private and found.st_uid == record.stat().st_uid else None


def job_token_file(run_dir: Path) -> Path | None:
    """The file with the token of the run in ``run_dir``, made if there is none; None where the disk takes none.

    Without a token the learner takes requests on loopback only.
    """
    path = run_dir.resolve() / TOKEN_FILE
    if not read_token(path):
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        except OSError:
            return None
    return path


def read_token(path: Path | None) -> str:
    """The token in the file; empty where there is none."""
    if path is None:
        return ""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
