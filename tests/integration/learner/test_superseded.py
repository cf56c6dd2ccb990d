"""Two learners of one job, as when a node was cut off: the earlier one stands still, a later one begins, and both meet again."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rljob.api.exit_codes import EXIT_SUPERSEDED
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.names import order

from tests.support.address import Address
from tests.support.ports import free_ports
from tests.support.roles import Roles

JOBS: dict[str, dict[str, Any]] = {
    "CartPoleIMPALA": {"algorithm": {"impala": {"unrollQueue": {"capacity": 32, "maxPolicyLagUpdates": 50}}}},
    "CartPoleApeX": {
        "replay": {"capacity": 50_000, "rateLimiter": {"samplesPerInsert": 8, "minSize": 500, "errorBuffer": 4000}}
    },
}
SPOKEN_AT = ("weights", "notice", "replay_ingest")
"""Where others speak to a learner; to one with a replay service not at the last."""


class TwoLearners(Roles):
    """Processes of one job. Its actor speaks to the learner that ``lead_to`` has named last."""

    def __init__(self, preset: str, folder: Path) -> None:
        spec = {"preset": preset, "actors": {"envsPerActor": 8}, "checkpoint": {"intervalSeconds": 1}, **JOBS[preset]}
        super().__init__(folder, spec)
        self._has_replay = preset == "CartPoleApeX"
        ports = iter(free_ports(8))
        self._endpoints = {
            learner: {at: f"tcp://127.0.0.1:{next(ports)}" for at in SPOKEN_AT} for learner in ("old", "new")
        }
        self.addresses = {at: Address(endpoint) for at, endpoint in self._endpoints["old"].items()}
        self._replay = {at: f"tcp://127.0.0.1:{next(ports)}" for at in ("replay_ingest", "replay_sample")}

    def lead_to(self, learner: str) -> None:
        for at, address in self.addresses.items():
            address.lead_to(self._endpoints[learner][at])

    def start_learner(self, name: str, epoch: int, run_dir: str) -> None:
        meeting = self._endpoints[name] | (self._replay if self._has_replay else {})
        self.start("learner", name, **meeting, run_dir=self.directory / run_dir, resume="latest", epoch=epoch)

    def start_others(self) -> None:
        meeting = {at: address.endpoint for at, address in self.addresses.items()}
        run_dir = self.directory / "run"
        if self._has_replay:
            meeting["replay_ingest"] = self._replay["replay_ingest"]
            self.start("replay", "replay-0", **self._replay, run_dir=run_dir, redis="none")
        self.start("actor", "actor-0", **meeting, run_dir=run_dir)

    def close(self) -> None:
        super().close()
        for address in self.addresses.values():
            address.close()


@pytest.fixture
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TwoLearners]:
    with ExitStack() as closing:
        made = TwoLearners(request.param, tmp_path)
        closing.callback(made.close)
        yield made


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
    two.start_learner("new", 2, "run" if place == "shared" else "run of the new one")
    two.lead_to("new")
    before = two.until("new", lambda told: told["updates"] > 10 and told["checkpoint"]["state"] == "Valid")
    assert before["epoch"] == 2
    saved = {path.name for path in checkpoint.stored(tmp_path / "run" / "checkpoints")}

    two.lead_to("old")  # a name that still leads to the pod that was given up
    two.processes["old"].send_signal(signal.SIGCONT)
    assert two.processes["old"].wait() == EXIT_SUPERSEDED
    words = (tmp_path / "old.log").read_text()
    assert "a learner of epoch 2 has begun after this one, of epoch 1, which ends here" in words
    two.lead_to("new")

    assert two.until("new", lambda told: told["updates"] > before["updates"] + 20)["epoch"] == 2
    if place == "shared":
        here = {path.name for path in checkpoint.stored(tmp_path / "run" / "checkpoints")}
        assert {name for name in here if order(name).epoch == 1} <= saved, "it has written none since"  # type: ignore[union-attr]
    if "replay-0" in two.processes:
        assert two.status("replay-0")["epoch"] == 2
    assert two.processes["actor-0"].poll() is None
