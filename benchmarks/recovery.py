"""How soon a local run is itself again: after kill -9 of a role or of one of two replay shards, a resume, a change of the
learner's speed, a dead environment.

    python -m benchmarks.recovery [--rounds 3]

Tests only ask that each of these happens, however long it takes. Here are the seconds, on CartPole, with the runs of
``tests.support.local_run``.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from rljob.api import EnvironmentParameters
from rljob.envs import EnvironmentProblem, make_vector_environment
from rljob_operator.local.job_view import running_members

from benchmarks.common import machine, report
from tests.support import slow_game
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES, SLOWED
from tests.support.slowed.sitecustomize import LEARNER_DELAY_FILE

PATIENCE_SECONDS = 120
FAST, SLOW = "0.06", "0.15"
"""Seconds added to each update of the learner that is throttled and released."""
PERIOD_SECONDS = 4.0
"""Between two decisions about the number of actors in slow_game.yaml."""
WATCHED_SECONDS = 6 * PERIOD_SECONDS
SHARDED_ACTORS = ("actor-0", "actor-1")
"""Actors of the run with two shards."""
AWAY_SECONDS = 6.0
"""How long one of two shards is kept away; its return, which takes a second or two, would hide that actors wait for it."""


def killed_roles(run: LocalRun) -> None:
    """From kill -9 until the new process has announced itself and the learner has updated again."""
    for name in ("actor-0", "replay-0", "learner"):
        run.until_learning(50)
        pid, killed = run.kill(name), time.monotonic()
        run.until(lambda name=name, pid=pid: run.announced(name).get("pid") not in (None, pid), PATIENCE_SECONDS, name)
        announced = time.monotonic() - killed
        updates = run.until(lambda: run.status("learner").get("updates"), PATIENCE_SECONDS, "the learner's status")
        run.until_learning(updates + 1)
        report("killed_role", role=name, announced_seconds=announced, updating_seconds=time.monotonic() - killed)


def lost_shard(folder: Path, lost: str) -> None:
    """From kill -9 of one of two shards, which is kept away: the longest time in which the other has acknowledged nothing of an
    actor's, beside the longest while both were there."""
    sets = ("spec.replay.shards=2", "spec.actors.replicas=2", "spec.backoffLimit=100")
    options = [word for each in sets for word in ("--set", each)]
    run = LocalRun(EXAMPLES / "cartpole-apex.yaml", folder / "shards", *ENDLESS, *options)
    try:
        run.until_learning(50)
        run.until(
            lambda: all(run.status(name).get("acknowledged") for name in SHARDED_ACTORS), PATIENCE_SECONDS, "actors"
        )
        with_both = longest_pauses(run)
        ended = {run.kill(lost)}
        with_one = longest_pauses(run, lost, ended)
        run.until(lambda: run.status(lost).get("state") == "serving", PATIENCE_SECONDS, "the shard's return")
        run.interrupt()
    finally:
        run.close()
    report(
        "lost_shard",
        shard=lost,
        longest_pause_seconds=max(with_one.values()),
        longest_pause_with_both_seconds=max(with_both.values()),
        lives_ended=len(ended),
    )


def longest_pauses(run: LocalRun, kept_away: str = "", ended: set[int] | None = None) -> dict[str, float]:
    """The longest time without an acknowledgement for each actor, in the next ``AWAY_SECONDS``.

    Each new life of ``kept_away`` is ended before it can serve; ``ended`` has the processes of those that were.
    """
    ended = set() if ended is None else ended
    started = time.monotonic()
    acknowledged, since = dict.fromkeys(SHARDED_ACTORS, 0), dict.fromkeys(SHARDED_ACTORS, started)
    longest = dict.fromkeys(SHARDED_ACTORS, 0.0)
    while time.monotonic() - started < AWAY_SECONDS:
        pid = running_members(run.run_dir).get(kept_away)
        if pid is not None and pid not in ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            ended.add(pid)
        for name in SHARDED_ACTORS:
            count, now = run.status(name).get("acknowledged", acknowledged[name]), time.monotonic()
            longest[name] = max(longest[name], now - since[name])
            if count > acknowledged[name]:
                acknowledged[name], since[name] = count, now
        time.sleep(0.02)
    return longest


def asked_to_leave(run: LocalRun) -> None:
    """From SIGTERM until the actor's process is gone."""
    actor = psutil.Process(int(run.announced("actor-0")["pid"]))
    asked = time.monotonic()
    actor.send_signal(signal.SIGTERM)
    run.until(
        lambda: not actor.is_running() or actor.status() == psutil.STATUS_ZOMBIE, PATIENCE_SECONDS, "the actor gone"
    )
    report("actor_leaves", seconds=time.monotonic() - asked)
    run.until(lambda: run.announced("actor-0").get("pid") not in (None, actor.pid), PATIENCE_SECONDS, "another actor")


def suspended_and_resumed(run: LocalRun) -> None:
    """Drain, checkpoint, verify, stop; and from the wish to go on until the job is Ready again."""
    run.until_learning(50)
    started = time.monotonic()
    code, printed = run.verb("suspend", str(run.run_dir), "--wait")
    assert code == 0, printed
    suspended = time.monotonic() - started
    started = time.monotonic()
    code, printed = run.verb("resume", str(run.run_dir))
    assert code == 0, printed
    run.until(lambda: run.job_status.is_true("Ready"), PATIENCE_SECONDS, "Ready")
    report("suspend_and_resume", suspend_seconds=suspended, resume_seconds=time.monotonic() - started)


def throttled_and_released(folder: Path) -> None:
    """From a change of the learner's speed until the number of actors is within one of where it ends."""
    delay = folder / "delay"
    delay.write_text(FAST)
    environment = SLOWED | {LEARNER_DELAY_FILE: str(delay)}
    run = LocalRun(slow_game.JOB, folder / "scaled", "--max-actors", "6", environment=environment)
    try:
        run.until(lambda: run.reason("ScalingActive") == "ValidMetricFound", PATIENCE_SECONDS, "a first decision")
        before, _ = followed(run)
        for change, seconds in (("throttled", SLOW), ("released", FAST)):
            delay.write_text(seconds)
            after, settled = followed(run)
            report("scaling", learner=change, actors_before=before, actors_after=after, settled_seconds=settled)
            before = after
    finally:
        run.close()


def followed(run: LocalRun) -> tuple[int, float]:
    """(desired actors after a while, seconds after which they were within one of that for good)."""
    started, seen = time.monotonic(), list[tuple[float, int]]()
    while (elapsed := time.monotonic() - started) < WATCHED_SECONDS:
        seen.append((elapsed, run.job_status.autoscaling.desired_replicas))
        time.sleep(0.25)
    final = seen[-1][1]
    return final, max((elapsed for elapsed, number in seen if abs(number - final) > 1), default=0.0)


def dead_environment() -> None:
    """From kill -9 of one of three environment processes until the step that names it has ended."""
    parameters = EnvironmentParameters(backend="Async")
    env = make_vector_environment("CartPole-v1", parameters, 3, 0)
    env.reset()
    worker = multiprocessing.active_children()[0]
    killed = time.monotonic()
    worker.kill()
    try:
        while True:
            env.step(np.zeros(3, np.int64))
    except EnvironmentProblem:
        report("dead_environment", named_seconds=time.monotonic() - killed)
    finally:
        env.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    report("machine", **machine())
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            dead_environment()
            run = LocalRun(
                EXAMPLES / "cartpole-apex.yaml", folder / "run", *ENDLESS, "--set", "spec.checkpoint.intervalSeconds=2"
            )
            try:
                steps: list[Callable[[LocalRun], None]] = [killed_roles, asked_to_leave, suspended_and_resumed]
                for step in steps:
                    step(run)
                run.interrupt()
            finally:
                run.close()
            lost_shard(folder, f"replay-{number % 2}")
            throttled_and_released(folder)
        report("round", number=number)


if __name__ == "__main__":
    main()
