"""A real `rljob run` as a child process, and eyes on it through the files, pages and verbs that its users have."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rljob.api.status import RLJobStatus
from rljob.replay.embedded_redis import with_parent_death_signal
from rljob_operator.local.job_view import running_members

from tests.support.waiting import eventually

ENDLESS = [
    word
    for field in ("spec.successPolicy.targetReturn=", "spec.evaluator.triggerReturn=", "spec.evaluator.enabled=false")
    for word in ("--set", field)
]
"""No stop rule and no evaluator: the job trains until it is stopped."""


class LocalRun:
    """Starts `rljob run` with ``overrides`` in ``run_dir``; its output is collected in ``run_dir/../output.txt``.

    ``prelude``: Python statements that the controller's process runs first, to shorten one of its times."""

    def __init__(
        self,
        job: Path,
        run_dir: Path,
        *options: str,
        environment: dict[str, str] | None = None,
        output: str = "",
        prelude: str = "",
    ) -> None:
        self.run_dir = run_dir
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        self._output = run_dir.parent / f"{run_dir.name}-output{output}.txt"
        program = ["-m", "rljob_operator"]
        if prelude:
            program = ["-c", f"{prelude}\nfrom rljob_operator.__main__ import main\nmain()"]
        command = [sys.executable, *program, "run", str(job), "--run-dir", str(run_dir), *options]
        with self._output.open("wb") as printed:
            self.process = subprocess.Popen(
                with_parent_death_signal(command),  # it ends with the tests, also where these are killed
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=os.environ
                | {"CXX": "none"}
                | (environment or {}),  # a job without a budget of frames would compile
            )

    @property
    def output(self) -> str:
        """Everything printed so far."""
        return self._output.read_text()

    def verb(self, *words: str, seconds: float = 120) -> tuple[int, str]:
        """Run another `rljob` command, as from another terminal; answers its exit code and what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "rljob_operator", *words], capture_output=True, text=True, timeout=seconds
        )
        return done.returncode, done.stdout + done.stderr

    def answer(self, *words: str, code: int = 0, said: str = "") -> str:
        """What `verb` prints, which ends with this exit code and says this among other things."""
        ended, printed = self.verb(*words)
        assert (ended, said in printed) == (code, True), printed
        return printed

    @property
    def job_status(self) -> RLJobStatus:
        """What ``status.json`` says; an empty status while there is none."""
        try:
            return RLJobStatus.model_validate_json((self.run_dir / "status.json").read_bytes())
        except OSError:
            return RLJobStatus()

    def reason(self, type: str) -> str:
        """The reason of a condition; empty while nothing was said about it."""
        condition = self.job_status.condition(type)
        return condition.reason if condition is not None else ""

    def announced(self, name: str) -> dict[str, Any]:
        """What the role announced: pid, metrics_url, incarnation. Empty while it has not."""
        try:
            document: dict[str, Any] = json.loads((self.run_dir / "roles" / f"{name}.json").read_text())
        except (OSError, json.JSONDecodeError):
            return {}
        return document

    def status(self, name: str) -> dict[str, Any]:
        """The role's `/status`; empty while it does not answer."""
        url = self.announced(name).get("metrics_url")
        if not url:
            return {}
        try:
            with urllib.request.urlopen(f"{url}/status", timeout=10) as answer:
                document: dict[str, Any] = json.load(answer)
        except OSError:
            return {}
        return document

    def page(self, name: str, path: str) -> str:
        """The text of another page of the role, such as /metrics."""
        with urllib.request.urlopen(f"{self.announced(name)['metrics_url']}{path}", timeout=2) as answer:
            text: str = answer.read().decode()
        return text

    def until(self, what: Callable[[], Any], seconds: float, why: str) -> Any:
        """Wait until ``what`` answers something true and return it; fail with the run's output after ``seconds``."""

        def between() -> None:
            if self.process.poll() is not None:
                raise AssertionError(f"the run ended while waiting for {why}:\n{self.output}{self.logs()}")
            time.sleep(0.1)

        return eventually(what, lambda: f"{why}\n{self.output}{self.logs()}", seconds, between)

    def until_learning(self, updates: int = 20, seconds: float = 180) -> int:
        """Wait until the learner has done so many updates; answers how many."""
        done: int = self.until(
            lambda: (n := self.status("learner").get("updates", 0)) >= updates and n, seconds, f"{updates} updates"
        )
        return done

    def kill(self, name: str) -> int:
        """kill -9 of one role; answers the pid that is gone."""
        pid = int(self.announced(name)["pid"])
        os.kill(pid, signal.SIGKILL)
        return pid

    def finish(self, seconds: float = 120) -> int:
        """Wait for the run's own end and answer its exit code."""
        return self.process.wait(timeout=seconds)

    def interrupt(self, seconds: float = 60) -> int:
        """Ctrl-C, then the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.finish(seconds)

    def final(self, name: str) -> dict[str, Any]:
        """What a role wrote at its clean end."""
        document: dict[str, Any] = json.loads((self.run_dir / "roles" / f"{name}.final.json").read_text())
        return document

    def logs(self) -> str:
        """The last lines of every role's log, for a failing test's message."""
        logs = sorted((self.run_dir / "logs").glob("*.log"))
        return "\n".join(f"--- {x.name}\n" + "\n".join(x.read_text(errors="replace").splitlines()[-12:]) for x in logs)

    def close(self) -> None:
        """Make sure that nothing of the run is left."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in running_members(self.run_dir).values():
            os.kill(pid, signal.SIGKILL)


def assert_nothing_was_lost(run: LocalRun, *actors: str, one_life: bool = False) -> None:
    """Produced = acknowledged + dropped + in flight, and each acknowledged transition is in a shard's count, once.

    ``actors``: those whose present incarnation has left in good order; with ``one_life``, that incarnation made all of it.
    """
    ledgers = [json.loads(path.read_text()) for path in (run.run_dir / "roles").glob("replay-*.final.json")]
    for name in actors:
        actor = run.final(name)
        assert actor["produced"] == actor["acknowledged"] + actor["unacknowledged"] + sum(actor["dropped"].values())
        taken = [ledger["accepted"][name] for ledger in ledgers if name in ledger["accepted"]]
        own = sum(each["transitions"] for each in taken if each["incarnation"] == actor["incarnation"])
        assert actor["acknowledged"] <= own <= actor["acknowledged"] + actor["unacknowledged"]
    stored = sum(ledger["inserted_total"] for ledger in ledgers)
    accepted = sum(each["transitions"] for ledger in ledgers for each in ledger["accepted"].values())
    assert stored == accepted if one_life else stored >= accepted
