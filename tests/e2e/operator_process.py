"""The operator as a process of the tests: started, stopped in good order, killed, started again."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster import LONG_SECONDS, Namespace, pause
from tests.support.waiting import eventually

PREFIX = "RLJOB_E2E_OPERATOR"
"""The words of this variable stand before the operator's command, such as ``nsenter --net=... env KUBECONFIG=...``: it must reach
the API server and the pods. They must become the command (exec), so that a signal to them is one to the operator."""


_WINDOW = "from rljob_operator.core.autoscaling import limits; limits.STABILIZATION_SECONDS = 30.0"
"""Else a test that sees the number shrink would wait for three minutes; tests of the core see the window as it is."""


class OperatorProcess:
    """One operator of one namespace at a time; what they say goes to ``log_file``. ``options``: more words of its command."""

    def __init__(self, namespace: Namespace, log_file: Path, *options: str) -> None:
        self.namespace, self._log_file, self._options = namespace, log_file, options
        self._process: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, image: str = "", *options: str, prefix: Sequence[str] | None = None) -> None:
        """Start one and wait until it leads. ``image``: of jobs that name none, where it is not that of all these tests;
        ``prefix``: words in the place of the variable's."""
        leads = self.log().count(" leads")
        command, environment = [*self._command(image, prefix), *options], self._environment
        with self._log_file.open("ab") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        self._started.append(self._process)
        eventually(lambda: self.log().count(" leads") > leads or not self.runs, self.log, LONG_SECONDS, pause)
        assert self.runs, self.log()

    def start_outside(self, *options: str) -> None:
        """Start one where only the API server is reached, as from a laptop, and wait until it leads."""
        self.start("", *options, prefix=())

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.namespace.kubeconfig)}

    def _command(self, image: str = "", prefix: Sequence[str] | None = None) -> list[str]:
        name = self.namespace.name
        return [
            *(shlex.split(os.environ.get(PREFIX, "")) if prefix is None else prefix),
            sys.executable, "-c", f"{_WINDOW}; from rljob_operator.__main__ import main; main()", "operator",
            f"--namespace={name}", f"--lease-namespace={name}", f"--image={image or os.environ['RLJOB_E2E_IMAGE']}",
            "--plain-logs", "--port=0", *self._options,
        ]  # fmt: skip

    def end_all(self) -> None:
        """At the end of the tests: none stays, whatever a test left."""
        for process in self._started:
            process.kill()
            process.wait(60)

    def stop(self) -> None:
        """Ask it to end, which it does with code 0."""
        if self._process is not None:
            self._process.terminate()
            code = self._process.wait(60)
            self._process = None
            assert code == 0, self.log()

    def kill(self) -> None:
        """End it as a fault would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)
        self._process = None

    def ensure_runs(self) -> None:
        """Start one where a test has ended it."""
        if not self.runs:
            self.start()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return self._log_file.read_text() if self._log_file.exists() else ""


@contextmanager
def operator_of(namespace: Namespace, log_file: Path, *options: str) -> Iterator[OperatorProcess]:
    """An operator of the namespace that leads; in the end its jobs are deleted, and no process stays."""
    process = OperatorProcess(namespace, log_file, *options)
    try:
        process.start()
        yield process
        process.ensure_runs()
        namespace.delete_jobs()
        process.stop()
    finally:
        process.end_all()
