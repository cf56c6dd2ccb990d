"""Where the roles of one local run meet: unix sockets in a short folder of their own, removed with the run."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path


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
    def create(cls, shards: int, inference_servers: int = 0) -> Addresses:
        """Endpoints in a new private folder. A run folder's own path may be too long for a unix socket (107 characters)."""
        folder = Path(tempfile.mkdtemp(prefix="rljob-"))
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
