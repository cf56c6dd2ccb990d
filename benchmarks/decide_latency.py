"""How long one decision takes: `decide` on a job with many actors, over looks such as a controller has in an hour of running.

Reach: p99 <= 1 ms at 500 actors. CPU time of the one thread that decides. Prints one JSON line.

    python -m benchmarks.decide_latency --actors 500
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import replace

from rljob.api import RLJob, load_manifest
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob_operator.core.decide import decide
from rljob_operator.core.desired import DesiredState
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import CheckpointFacts, CheckpointState, Observation

from benchmarks.common import machine, report
from tests.support.paths import EXAMPLES

MANIFEST = EXAMPLES / "pong-apex.yaml"
START = 1_700_000_000.0
LOOK_SECONDS = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, default=500)
    parser.add_argument("--looks", type=int, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    job = _job(options.actors)
    latencies = _hour(job, options.actors, options.looks, random.Random(options.seed))
    latencies.sort()

    def percentile(share: float) -> float:
        return 1e3 * latencies[min(len(latencies) - 1, int(share * len(latencies)))]

    report(
        "decide_latency",
        actors=options.actors,
        looks=len(latencies),
        median_milliseconds=percentile(0.5),
        p99_milliseconds=percentile(0.99),
        max_milliseconds=1e3 * latencies[-1],
        decisions_per_second=len(latencies) / sum(latencies),
        machine=machine(),
    )


def _job(actors: int) -> RLJob:
    sets = [
        f"spec.actors.replicas={actors}",
        "spec.replay.capacity=10000000",
        "spec.autoscaling.mode=Internal",
        f"spec.autoscaling.maxReplicas={2 * actors}",
    ]
    return load_manifest(MANIFEST, sets)


def _hour(job: RLJob, actors: int, looks: int, chance: random.Random) -> list[float]:
    """CPU seconds of each decision: the wall clock of a shared machine also measures its other users.

    One actor in a thousand dies per second; the learner's document changes at every look.
    """
    status, now = RLJobStatus(), START
    members = {name: Member(name, role, Phase.READY, now, "1", now) for name, role in _names(actors)}
    seconds = []
    for k in range(looks):
        now = START + 1 + k * LOOK_SECONDS
        for name, member in list(members.items()):
            if member.phase is Phase.EXITED or member.phase is Phase.STARTING:
                continue
            if member.role is Role.ACTOR and chance.random() < 0.001:
                members[name] = replace(member, phase=Phase.EXITED, since_seconds=now, exit_code=137)
        seen = Observation(
            members=tuple(members.values()),
            learner=_sample(k, actors, now),
            checkpoint=CheckpointFacts(CheckpointState.VERIFIED, 10 * k, now, "file:///run/step", "sha256:00"),
        )
        began = time.thread_time()
        decision = decide(DesiredState(job), status, seen, now)
        seconds.append(time.thread_time() - began)
        status = decision.status
        for name in decision.start:
            members[name] = Member(name, Role(name.partition("-")[0]), Phase.READY, now, str(k), now)
        for name in decision.drain:
            del members[name]
    return seconds


def _names(actors: int) -> list[tuple[str, Role]]:
    core = [("replay-0", Role.REPLAY), ("learner", Role.LEARNER), ("evaluator", Role.EVALUATOR)]
    return core + [(f"actor-{k}", Role.ACTOR) for k in range(actors)]


def _sample(k: int, actors: int, now: float) -> LearnerStatus:
    document = {
        "updates": 20 * k + 1,
        "raw_frames_total": 40_000 * k,
        "mean_return": -20.0 + k / 100,
        "evaluations": [{"mean": -20.0, "standard_error": 0.1, "episodes": 20}] * min(100, k // 10),
        "learner_wait_fraction": 0.1,
        "actors_blocked_fraction": 0.1,
        "consumption_per_second": 10.0 * actors,
        "production_per_second": 10.0 * actors,
        "queue_depth_batches": 50.0,
        "queue_bound_batches": 100.0,
        "actors": [{"name": f"actor-{n}", "policy_version": 10 * k - n % 7} for n in range(actors)],
    }
    return LearnerStatus.answered(json.dumps(document), now)


if __name__ == "__main__":
    main()
