"""The roles of a job as processes of their own."""

import json
import signal
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rljob.api import RLJob, dump_manifest

from tests.support.forked_roles import ForkedRole
from tests.support.waiting import eventually


class Roles:
    """Real processes of one job; each can be ended and started again by itself."""

    def __init__(self, directory: Path, job: RLJob) -> None:
        self._sockets = tempfile.TemporaryDirectory(prefix="rljob-")
        self.directory = directory
        self.job = directory / "job.yaml"
        self.job.write_text(dump_manifest(job))
        self.processes: dict[str, ForkedRole] = {}

    def start(self, role: str, name: str, **options: object) -> None:
        announced = self.directory / f"{name}.json"
        announced.unlink(missing_ok=True)
        folder = self._sockets.name
        addresses = {"weights": "weights", "notice": "notice", "replay_ingest": "ingest", "inference": "inference"}
        given = {option: f"ipc://{folder}/{address}" for option, address in addresses.items()}
        given |= {"job": self.job, "name": name, "run_dir": self.directory, "announce": announced, **options}
        self.processes[name] = ForkedRole(role, self.directory / f"{name}.log", **given)

    def page(self, name: str, page: str) -> str:
        url = json.loads((self.directory / f"{name}.json").read_text())["metrics_url"]
        with urllib.request.urlopen(f"{url}/{page}", timeout=2) as answer:
            return str(answer.read().decode())

    def status(self, name: str) -> dict[str, Any]:
        """Empty where there is none."""
        try:
            return dict(json.loads(self.page(name, "status")))
        except (OSError, ValueError):
            return {}

    def until(self, name: str, happened: Callable[[dict[str, Any]], object], seconds: float = 120.0) -> dict[str, Any]:
        def log() -> str:
            return (self.directory / f"{name}.log").read_text()[-2000:]

        def there() -> dict[str, Any] | None:
            assert self.processes[name].poll() is None, log()
            status = self.status(name)
            return status if status and happened(status) else None

        def last() -> object:
            status = self.status(name)
            return status.get("updates"), status.get("queue"), log()

        return eventually(there, last, seconds, between=lambda: time.sleep(0.2))

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> int:
        process = self.processes.pop(name)
        process.send_signal(how)
        return process.wait()

    def close(self) -> None:
        for process in self.processes.values():
            process.close()
        self._sockets.cleanup()
