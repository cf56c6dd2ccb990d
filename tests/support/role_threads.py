"""Roles of one small CartPole job as threads of the test's process; each can be stopped and started again by itself."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rljob.api import RLJob
from rljob.roles.options import RoleOptions
from rljob.roles.replay import run_replay
from rljob.telemetry.recorder import read_records

from tests.support.jobs import job_of
from tests.support.waiting import eventually

ENDPOINTS = ("ingest", "sample", "weights", "notice", "inference")


def cartpole(parameters: Mapping[str, object] | None = None, **sections: Mapping[str, Any]) -> RLJob:
    """Ape-X on CartPole that learns after 500 transitions. ``sections`` of the spec add to what is set here."""
    values = {"precision": "FP32", "publishInterval": 10, **(parameters or {})}
    spec: dict[str, Any] = {
        "preset": "CartPoleApeX",
        "algorithm": values,
        "environment": {"rewardClipping": "Disabled"},
        "replay": {
            "capacity": 50_000,
            "rateLimiter": {"samplesPerInsert": 8, "minSize": 500, "errorBuffer": 4000},
        },
        "actors": {"replicas": 1, "envsPerActor": 8},
    }
    for name, section in sections.items():
        spec[name] = {**spec.get(name, {}), **section}
    return job_of(spec, "cartpole")


class RoleThreads:
    """Starts and stops roles of ``job``, which meet at ``endpoints`` (one for each name of ENDPOINTS that they need)."""

    def __init__(self, job: RLJob, run_dir: Path, endpoints: Mapping[str, str]) -> None:
        self.job, self.run_dir, self.endpoints = job, run_dir, endpoints
        self.failures: list[BaseException] = []
        self._roles: dict[str, tuple[threading.Thread, threading.Event]] = {}

    def start(self, role: Callable[[RoleOptions, threading.Event], None], name: str, **changes: Any) -> None:
        """Start ``role``; ``changes`` of its options, such as ``keys``."""
        options = RoleOptions(
            job=self.job,
            run_dir=self.run_dir,
            name=name,
            replay_ingest=(self.endpoints["ingest"],),
            replay_sample=(self.endpoints["sample"],),
            weights=self.endpoints["weights"],
            notice=self.endpoints["notice"],
            inference=(self.endpoints["inference"],),
            **{"redis": "none", **changes},
        )
        stop = threading.Event()

        def body() -> None:
            try:
                role(options, stop)
            except BaseException as failure:  # noqa: BLE001 - the test's own thread looks at it
                self.failures.append(failure)

        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        self._roles[name] = (thread, stop)

    def stop(self, name: str) -> None:
        """Ask the role to leave, and see it leave."""
        thread, stop = self._roles.pop(name)
        stop.set()
        thread.join(timeout=60)
        assert not thread.is_alive(), f"{name} did not stop"

    def close(self) -> None:
        """Stop whatever still runs, the actors first; a role that failed fails the test."""
        for name in sorted(self._roles):
            self.stop(name)
        assert not self.failures, self.failures

    def records(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The learner's records of that kind so far; without one, those of its figures."""
        path = self.run_dir / "metrics.jsonl"
        return [line for line in read_records(path) if line.get("kind") == kind] if path.exists() else []

    def until(self, condition: Callable[[dict[str, Any]], object], what: str, seconds: float = 60.0) -> dict[str, Any]:
        """Wait for ``condition`` of the learner's newest figures (empty before the first) and answer them."""
        figures: dict[str, Any] = {}

        def reached() -> bool:
            nonlocal figures
            assert not self.failures, self.failures
            figures = (self.records() or [{}])[-1]
            return bool(condition(figures))

        eventually(reached, lambda: f"{what}; the last figures are {figures}", seconds, lambda: time.sleep(0.1))
        return figures


@contextmanager
def over_ipc(job: RLJob, run_dir: Path, *, replay: bool = True) -> Iterator[RoleThreads]:
    """The job's roles, which meet at sockets of their own, of which ``replay-0`` runs; what still runs at the end is stopped."""
    # ipc, not inproc: an inproc connection does not come back when the other end is closed and bound again
    with tempfile.TemporaryDirectory(prefix="rljob-") as sockets:
        roles = RoleThreads(job, run_dir, {kind: f"ipc://{sockets}/{kind}" for kind in ENDPOINTS})
        if replay:
            roles.start(run_replay, "replay-0")
        with closing(roles):
            yield roles
