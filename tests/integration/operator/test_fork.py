"""A running learner takes another run's weights, and live fields: real runs, nothing is restarted."""

from collections.abc import Callable
from pathlib import Path

from rljob.checkpoints.files import read_manifest, stored
from rljob_operator.local.job_view import running_members

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.waiting import known


def test_a_fork_is_done_at_once_in_place_and_once(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    options = (*ENDLESS, "--set", "checkpoint.intervalSeconds=3600")
    donor = local_run(*options, run_dir=tmp_path / "donor")
    run = local_run(*options, "--set", "seed=7", run_dir=tmp_path / "run")
    folder = str(run.run_dir)
    donor.until_learning()
    donor.answer("checkpoint", str(donor.run_dir), "--wait")
    saved = known(donor.job_status.checkpoint)
    donor.close()
    run.until_learning()

    members, before = running_members(run.run_dir), run.status("learner")
    fork = f"fork={{id: first, from: '{saved.uri}', digest: '{saved.digest}'}}"
    live = (
        "replay.prioritization.importance=0.7",
        "replay.prioritization.exponent=0.3",
        "algorithm.apeXDQN.epsilonBase=0.2",
    )
    run.answer("set", folder, fork, *live, "--wait", said="the learner follows")
    said, after = known(run.job_status.fork), run.status("learner")
    assert (said.id, said.state) == ("first", "Done"), said
    assert after["epoch"] == before["epoch"] + 1
    for name in ("updates", "steps", "raw_frames_total"):
        assert after[name] >= before[name]
    assert running_members(run.run_dir) == members
    run.until_learning(known(said.updates) + 1, seconds=10)
    run.until(lambda: "epsilon 0.2 to" in (run.run_dir / "logs" / "actor-0.log").read_text(), 10, "actors that follow")

    def newest_says() -> object:
        return next((read_manifest(path).get("fork") for path in stored(run.run_dir / "checkpoints")), None)

    run.until(lambda: newest_says() == "first", 30, "a checkpoint that names the fork")
    run.kill("learner")
    run.until(lambda: run.status("learner").get("epoch", 0) > after["epoch"], 60, "the next life")
    again = run.until(lambda: run.status("learner").get("fork"), 60, "what it says of the fork")
    assert (again["id"], again["state"], again["updates"]) == ("first", "Done", None), "it is not done twice"

    wrong = f"fork={{id: second, from: '{saved.uri}', digest: 'sha256:{'0' * 64}'}}"
    run.answer("set", folder, wrong, "--wait")
    refused = known(run.job_status.fork)
    assert (refused.state, "holds no checkpoint" in refused.message) == ("Refused", True)
    run.until_learning(run.status("learner")["updates"] + 1, seconds=30)
