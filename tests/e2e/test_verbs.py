"""`rljob suspend`, `resume`, `checkpoint` and `stop` on a job that trains, and an
operator that asks its learner through the API server.

The tests follow each other on one job, as a user would go through them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import LONG_SECONDS, Namespace, checkpoint_claim, endless, pause
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

JOB = "steered"
KEPT = {"storage": {"persistentVolumeClaim": {"claimName": "checkpoints"}}, "intervalSeconds": 3600}
RLJOB = (sys.executable, "-c", "from rljob_operator.__main__ import main; main()")


class Terminal:
    """Where a user types verbs."""

    def __init__(self, namespace: Namespace) -> None:
        self._place = ("-n", namespace.name, "--kubeconfig", str(namespace.kubeconfig))

    def command(self, verb: str, *words: str) -> list[str]:
        return [*RLJOB, verb, *self._place, *words]

    def types(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        wide = {**os.environ, "COLUMNS": "200"}
        return subprocess.run(
            self.command(verb, *words), capture_output=True, text=True, timeout=LONG_SECONDS + 60, env=wide
        )

    def sees(self, verb: str, *words: str) -> str:
        ended = self.types(verb, *words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def trains(bare_namespace: Namespace, operator: OperatorProcess) -> Iterator[Namespace]:
    """The namespace in which the job trains."""
    bare_namespace.train(checkpoint_claim(), endless(JOB, checkpoint=KEPT))
    yield bare_namespace
    bare_namespace.delete_jobs()


@pytest.fixture
def terminal(trains: Namespace) -> Terminal:
    return Terminal(trains)


def test_suspend_and_resume(trains: Namespace, terminal: Terminal) -> None:
    said = terminal.sees("suspend", JOB, "--wait", "--timeout", str(LONG_SECONDS))
    step = trains.job_status(JOB)["checkpoint"]["step"]
    assert said.splitlines()[-1].endswith(f"suspended at update {step:,}")
    eventually(lambda: not trains.all_pods(JOB), lambda: str(trains.pods(JOB)), LONG_SECONDS, pause)
    assert "is suspended, and saved itself then" in terminal.types("checkpoint", JOB).stderr
    terminal.sees("resume", JOB, "--wait", "--timeout", str(LONG_SECONDS))
    trains.wait_updates(JOB, more_than=step)


def test_stopping_and_resuming_at_once_again_and_again(trains: Namespace, terminal: Terminal) -> None:
    """A user who does not wait: the pods of one life are still being removed when the next begins."""
    for _ in range(3):
        for verb, *words in (["suspend", "--wait"], ["resume", "--wait"], ["stop"], ["resume", "--wait"]):
            terminal.sees(verb, JOB, *words, "--timeout", str(LONG_SECONDS))
        trains.wait_updates(JOB, more_than=trains.job_status(JOB)["checkpoint"]["step"])


def test_an_operator_that_asks_through_the_api_server(
    trains: Namespace, terminal: Terminal, operator: OperatorProcess
) -> None:
    """From where no pod's address is reached: with the API server's own address, and no way into the pods' network."""
    operator.stop()
    operator.start_outside("--reach=pods-proxy")
    seen = trains.job_status(JOB)["progress"]["learnerUpdates"]
    eventually(
        lambda: trains.job_status(JOB)["progress"]["learnerUpdates"] > seen,
        lambda: f"progress is {trains.job_status(JOB)['progress']}",
        LONG_SECONDS,
        pause,
    )
    before = trains.job_status(JOB)["checkpoint"]["step"]
    terminal.sees("checkpoint", JOB, "--wait", "--timeout", str(LONG_SECONDS))
    assert trains.job_status(JOB)["checkpoint"]["step"] > before
    trains.wait_for(JOB, "Ready", "True", "Running")
