"""Two learners of one job, as when a node was cut off: the earlier one stands still, a later one begins, and both meet again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from rljob.api.exit_codes import EXIT_SUPERSEDED
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.names import order

from tests.support.address import Address
from tests.support.ports import free_ports
from tests.support.waiting import eventually

JOBS: dict[str, dict[str, Any]] = {
    "CartPoleIMPALA": {"algorithm": {"impala": {"unrollQueue": {"capacity": 32, "maxPolicyLagUpdates": 50}}}},
    "CartPoleApeX": {
        "replay": {"capacity": 50_000, "rateLimiter": {"samplesPerInsert": 8, "minSize": 500, "errorBuffer": 4000}}
    },
}
SPOKEN_AT = ("weights", "notice", "replay-ingest")
"""Where others speak to a learner; to one with a replay service not at the last."""


class TwoLearners:
    """Processes of one job. Its actor speaks to the learner that ``leads_to`` has named last."""

    def __init__(self, preset: str, folder: Path) -> None:
        self._folder, self._has_replay = folder, preset == "CartPoleApeX"
        self.job = folder / "job.yaml"
        spec = {"preset": preset, "actors": {"envsPerActor": 8}, "checkpoint": {"intervalSeconds": 1}, **JOBS[preset]}
        head = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "cartpole"}}
        self.job.write_text(yaml.safe_dump({**head, "spec": spec}))
        ports = iter(free_ports(8))
        self._endpoints = {
            learner: {at: f"tcp://127.0.0.1:{next(ports)}" for at in SPOKEN_AT} for learner in ("old", "new")
        }
        self.addresses = {at: Address(endpoint) for at, endpoint in self._endpoints["old"].items()}
        self._replay = {
            "replay-ingest": f"tcp://127.0.0.1:{next(ports)}",
            "replay-sample": f"tcp://127.0.0.1:{next(ports)}",
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def lead_to(self, learner: str) -> None:
        for at, address in self.addresses.items():
            address.lead_to(self._endpoints[learner][at])

    def start_learner(self, name: str, epoch: int, run_dir: str) -> None:
        meeting = self._endpoints[name]
        if self._has_replay:
            meeting = {**meeting, **self._replay}
            del meeting["replay-ingest"]
        self._start("learner", name, meeting, run_dir, "--resume", "latest", "--epoch", str(epoch))

    def start_others(self) -> None:
        meeting = {at: address.endpoint for at, address in self.addresses.items()}
        if self._has_replay:
            meeting["replay-ingest"] = self._replay["replay-ingest"]
            self._start("replay", "replay-0", self._replay, "run", "--redis", "none")
        self._start("actor", "actor-0", meeting, "run")

    def _start(self, role: str, name: str, meeting: dict[str, str], run_dir: str, *options: str) -> None:
        command = [sys.executable, "-m", "rljob.roles", role, "--job", str(self.job), "--name", name, *options]
        command += ["--run-dir", str(self._folder / run_dir), "--announce", str(self._folder / f"{name}.json")]
        for at, endpoint in meeting.items():
            command += [f"--{at}", endpoint]
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def told(self, name: str) -> dict[str, Any]:
        try:
            url = json.loads((self._folder / f"{name}.json").read_text())["metrics_url"]
            with urllib.request.urlopen(f"{url}/status", timeout=2) as answer:
                return dict(json.load(answer))
        except (OSError, ValueError):
            return {}

    def until(self, name: str, happened: Callable[[dict[str, Any]], object], seconds: float = 120.0) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            assert self.processes[name].poll() is None, self.log(name).read_text()[-2000:]
            told = self.told(name)
            return told if told and happened(told) else None

        return eventually(
            there, lambda: (self.told(name), self.log(name).read_text()[-1500:]), seconds, lambda: time.sleep(0.2)
        )

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for address in self.addresses.values():
            address.close()


@pytest.fixture
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TwoLearners]:
    with ExitStack() as closing:
        made = TwoLearners(request.param, tmp_path)
        closing.callback(made.close)
        yield made


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("two", "place"),
    [("CartPoleIMPALA", "its own"), ("CartPoleApeX", "shared")],
    indirect=["two"],
)
def test_a_learner_that_comes_back_ends_and_nothing_of_it_gets_through(
    two: TwoLearners, place: str, tmp_path: Path
) -> None:
    two.start_learner("old", 1, "run")
    two.start_others()
    two.until("old", lambda told: told["updates"] > 30 and told["checkpoint"]["state"] == "Valid")
    two.processes["old"].send_signal(signal.SIGSTOP)
    run_dir = "run" if place == "shared" else "run of the new one"
    two.start_learner("new", 2, run_dir)
    two.lead_to("new")
    before = two.until("new", lambda told: told["updates"] > 10 and told["checkpoint"]["state"] == "Valid")
    assert before["epoch"] == 2
    saved = {path.name for path in checkpoint.stored(tmp_path / "run" / "checkpoints")}

    two.lead_to("old")  # a name that still leads to the pod that was given up
    two.processes["old"].send_signal(signal.SIGCONT)
    assert two.processes["old"].wait(30) == EXIT_SUPERSEDED
    words = two.log("old").read_text()
    assert "a learner of epoch 2 has begun after this one, of epoch 1, which ends here" in words
    two.lead_to("new")

    after = two.until("new", lambda told: told["updates"] > before["updates"] + 20)
    assert after["epoch"] == 2
    if place == "shared":
        here = {path.name for path in checkpoint.stored(tmp_path / "run" / "checkpoints")}
        assert {name for name in here if order(name).epoch == 1} <= saved, "it has written none since"  # type: ignore[union-attr]
    if "replay-0" in two.processes:
        assert two.told("replay-0")["epoch"] == 2
    assert two.processes["actor-0"].poll() is None
