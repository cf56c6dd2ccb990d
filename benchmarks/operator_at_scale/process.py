"""Programs that the benchmark starts: the operator, and the stand-in for learners; and the operator's own figures."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.waiting import eventually

START_SECONDS = 60.0
STOP_SECONDS = 60.0
CALLS = "rljob_operator_api_calls_total"
_LEADS = re.compile(r"(\S+) leads$", re.MULTILINE)
_LINE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")


class Operator:
    """`rljob operator` as a process of its own; it stands for election once it is made.

    Args:
        namespaces: looks after the jobs of the only one, or of the whole cluster where there are more.
        image: of the pods that it makes, by which one release is told from another.
        source: a checkout of another commit, whose operator it is; None is this one's.
    """

    def __init__(
        self,
        namespaces: tuple[str, ...],
        log_file: Path,
        workers: int,
        *,
        image: str = "rljob-worker:none",
        source: Path | None = None,
    ) -> None:
        self.log_file = log_file
        (self._port,) = free_ports(1)
        scope = [f"--namespace={namespaces[0]}"] if len(namespaces) == 1 else []
        command = [
            sys.executable, "-c", "from rljob_operator.__main__ import main; main()", "operator", *scope,
            f"--lease-namespace={namespaces[0]}", f"--image={image}", "--plain-logs", f"--port={self._port}",
            f"--workers={workers}",
        ]  # fmt: skip
        path = {"PYTHONPATH": f"{source / 'workers'}:{source / 'operator'}"} if source is not None else {}
        with log_file.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **path}
            )

    def wait(self, ready: Callable[[], bool]) -> None:
        """Until ``ready``, while it runs. Raises AssertionError."""
        eventually(lambda: ready() or self._process.poll() is not None, self.log, START_SECONDS, _pause)
        assert self._process.poll() is None, self.log()

    def figures(self) -> dict[str, float]:
        """Its `/metrics`: name, with labels as they are written, to value."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            match = _LINE.match(line)
            if match is not None:
                labels = f"{{{match[2]}}}" if match[2] else ""
                found[match[1] + labels] = float(match[3])
        return found

    def log(self) -> str:
        """All that it has said."""
        return self.log_file.read_text()

    async def watch(self) -> None:
        """Never ends by itself. Raises RuntimeError where the operator has ended."""
        while self._process.poll() is None:
            await asyncio.sleep(1.0)
        raise RuntimeError(f"the operator has ended with code {self._process.returncode}: {self.log()[-2000:]}")

    def stop(self) -> None:
        """End it in good order."""
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
            self._process.wait(STOP_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and wait for nothing."""
        self._process.send_signal(number)

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        return self._process.wait(STOP_SECONDS)

    @property
    def identity(self) -> str:
        """Its name in the Lease, once it leads; empty before."""
        found = _LEADS.search(self.log())
        return found[1] if found else ""

    def stands(self) -> bool:
        """Whether it answers, as a Deployment asks of a new replica: a candidate that waits for the Lease does."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=30):
                return True
        except OSError:
            return False

    def leads(self) -> bool:
        """Whether it has the Lease and knows its jobs."""
        try:
            return self.figures().get("rljob_operator_leader", 0.0) == 1.0 and "looks after" in self.log()
        except OSError:
            return False


@contextmanager
def operator(namespaces: tuple[str, ...], log_file: Path, workers: int) -> Iterator[Operator]:
    """One that leads."""
    running = Operator(namespaces, log_file, workers)
    try:
        running.wait(running.leads)
        yield running
    finally:
        running.stop()


class Learners:
    """The stand-in that answers for every learner (`learners`), as a process of its own."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "benchmarks.operator_at_scale.learners", str(port)])

    def be_silent(self) -> None:
        """From now on connections are taken and nothing is said on any."""
        self._process.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextmanager
def own_addresses(addresses: str) -> Iterator[None]:
    """All of the range ``addresses`` are this machine's own meanwhile (Linux, as root)."""
    route = ["local", addresses, "dev", "lo"]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "route", "add", *route], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "route", "del", *route], check=False)


@contextmanager
def learners(port: int, addresses: str) -> Iterator[Learners]:
    """Answers at every address of the range ``addresses``."""
    with own_addresses(addresses):
        running = Learners(port)
        try:
            yield running
        finally:
            running.stop()


def calls_between(before: dict[str, float], after: dict[str, float]) -> dict[str, int]:
    """Calls to the API server by verb and resource, whatever was answered; refusals stand beside, by code."""
    found: dict[str, int] = {}
    for name, value in after.items():
        made = int(value - before.get(name, 0.0))
        if not name.startswith(f"{CALLS}{{") or not made:
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', name))
        what = f"{labels['verb']} {labels['resource']}"
        if not labels["code"].startswith("2"):
            what += f" ({labels['code']})"
        found[what] = found.get(what, 0) + made
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def _pause() -> None:
    time.sleep(0.1)
