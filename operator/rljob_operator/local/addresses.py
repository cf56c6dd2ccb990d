"""The addresses of the roles of one local run, and how members are asked there.

Unix sockets are in a short folder of their own, removed with the run. A token lets the learner be asked for a checkpoint,
wherever it listens.
"""

import asyncio
import json
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from rljob.files import socket_folder
from rljob.strict_json import dumps

from rljob_operator.local.run_folder import write_json
from rljob_operator.polls import reach
from rljob_operator.polls.reach import TIMEOUT_SECONDS, NoAnswer, good, not_in_time, unreadable

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


class Loopback:
    """See `Reach`. Each question has a connection of its own, and ``timeout_seconds``."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds

    async def read(self, url: str, page: str, most_bytes: int = reach.LARGEST_BYTES) -> bytes:
        """See `Reach`."""
        return good(*await self._ask(url, page), page, most_bytes)

    async def health(self, url: str) -> tuple[int, str]:
        """See `Reach`."""
        code, body = await self._ask(url, "healthz")
        return code, body.decode(errors="replace")

    async def send(self, url: str, page: str, document: Mapping[str, Any], token: str) -> bool:
        """See `Reach`."""
        try:
            code, _ = await self._ask(url, page, dumps(document).encode(), token)
        except NoAnswer:
            return False
        return code < 300

    async def close(self) -> None:
        """See `Reach`: none is kept."""

    async def _ask(self, url: str, page: str, body: bytes | None = None, token: str = "") -> tuple[int, bytes]:
        """(HTTP status, body). A stopped process still takes connections (the kernel does), so only an answer counts."""
        lines = [f"{'GET' if body is None else 'POST'} /{page} HTTP/1.0"]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        if token:
            lines.append(f"Authorization: Bearer {token}")
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await _exchange(url, "\r\n".join([*lines, "", ""]).encode() + (body or b""))
        except TimeoutError:
            raise not_in_time(self._timeout_seconds) from None
        except (OSError, ValueError) as error:  # ValueError: the address is none
            raise unreadable(page, error) from None
        head, _, content = answer.partition(b"\r\n\r\n")
        protocol, _, code = head.partition(b"\r\n")[0].partition(b" ")
        if not protocol.startswith(b"HTTP/") or not code[:3].isdigit():
            raise NoAnswer(f"its {page} can't be read: it is no HTTP")
        return int(code[:3]), content


async def _exchange(url: str, request: bytes) -> bytes:
    """The whole answer, but not much more than a good answer may have."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(request)
        await writer.drain()
        answer = bytearray()
        while len(answer) < reach.LARGEST_BYTES + 65536 and (piece := await reader.read(65536)):
            answer += piece
        return bytes(answer)
    finally:
        writer.transport.abort()
