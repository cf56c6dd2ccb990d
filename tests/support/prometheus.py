"""A real Prometheus as a child process, and what it answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from rljob.replay.embedded_redis import with_parent_death_signal

from tests.support.waiting import eventually

ON_THE_PATH = shutil.which("prometheus")
SKIPPED = "prometheus is not on the PATH (docs/monitoring.md)"
START_SECONDS = 60.0
_FETCH = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
"""


class Prometheus:
    """Scrapes as ``config`` says, into ``data`` (default: a folder of that name in ``folder``).

    ``prefix``: words before the command that put it where it reaches its targets, such as another network namespace, and before
    every question to it.
    """

    def __init__(
        self, folder: Path, config: dict[str, Any], port: int, prefix: Sequence[str] = (), data: Path | None = None
    ) -> None:
        assert ON_THE_PATH is not None, SKIPPED
        self._prefix, self._url, self._log = list(prefix), f"http://127.0.0.1:{port}", folder / "prometheus.log"
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        command: list[str | Path] = [
            *self._prefix, ON_THE_PATH, f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={data or folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        command[0] = shutil.which(command[0]) or command[0]  # what ties a child to us takes a whole path
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                with_parent_death_signal(command), stdout=log, stderr=subprocess.STDOUT, cwd=folder
            )
        eventually(self._ready, self.log, START_SECONDS)

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def targets(self) -> dict[str, list[dict[str, Any]]]:
        """``activeTargets`` and ``droppedTargets``."""
        return dict(self._data("/api/v1/targets"))

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """The vector: ``{"metric": {label: value}, "value": [time, text]}`` of each series."""
        when = {"time": at} if at is not None else {}
        return list(self._data("/api/v1/query", query=expression, **when)["result"])

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of a time: ``{"metric": ..., "values": [[time, text], ...]}``."""
        return list(self._data("/api/v1/query_range", query=expression, start=start, end=end, step=step)["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Every alerting rule as Prometheus holds it."""
        return [rule for group in self._data("/api/v1/rules")["groups"] for rule in group["rules"]]

    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")[-4000:]

    def _ready(self) -> bool:
        assert self._process.poll() is None, self.log()
        try:
            return "Ready" in self._fetch("/-/ready")
        except (OSError, subprocess.SubprocessError):
            return False

    def _data(self, path: str, **parameters: Any) -> Any:
        answer = json.loads(self._fetch(f"{path}?{urllib.parse.urlencode(parameters)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def _fetch(self, path: str) -> str:
        url = self._url + path
        if self._prefix:
            command = [*self._prefix, sys.executable, "-c", _FETCH, url]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()
