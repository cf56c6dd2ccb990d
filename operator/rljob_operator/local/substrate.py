"""The local substrate: a job's members are processes of this machine; `observe` and `apply` are its two verbs."""

from __future__ import annotations

import os
import sys
import time
import urllib.request
from pathlib import Path

from rljob.api import RLJob
from rljob.api.status import RLJobStatus

from rljob_operator.local.addresses import Addresses
from rljob_operator.local.process import RoleProcess
from rljob_operator.model import CheckpointFacts, CheckpointState, Decision, LearnerSample, Observation, Role
from rljob_operator.sample import BadSample, parse_sample

MAX_STATUS_BYTES = 16 << 20
"""A status document with a thousand evaluations has about 300 KB; more than this is not one."""

DRAIN_SECONDS = {Role.EVALUATOR: 3.0, Role.LEARNER: 60.0, Role.REPLAY: 60.0}
"""How long a member may take to leave before it is killed: the learner writes a checkpoint, the replay its durable state.
Actors have ``actors.drainSeconds``."""


class LocalSubstrate:
    """Starts, watches and drains the processes of one job in ``run_dir``."""

    def __init__(self, job: RLJob, job_file: Path, run_dir: Path) -> None:
        self._run_dir = run_dir
        shards = job.spec.replay.shards
        self._drain_seconds = DRAIN_SECONDS | {Role.ACTOR: float(job.spec.actors.drain_seconds)}
        self._addresses = Addresses.create(shards)
        (run_dir / "roles").mkdir(parents=True, exist_ok=True)
        (run_dir / "logs").mkdir(parents=True, exist_ok=True)
        self._job_file = job_file
        self._processes: dict[str, RoleProcess] = {}
        self._latest: LearnerSample | None = None
        for k in range(shards):
            ingest, sample = self._addresses.replay_ingest[k], self._addresses.replay_sample[k]
            self._add(f"replay-{k}", Role.REPLAY, ["--replay-ingest", ingest, "--replay-sample", sample])
        self._add("learner", Role.LEARNER, self._learner_options())
        if job.spec.evaluator.enabled:
            self._add("evaluator", Role.EVALUATOR, self._weights_options())

    def observe(self) -> Observation:
        """Every member as it is now, the learner's newest sample, and the newest checkpoint."""
        members = tuple(process.observe() for process in self._processes.values())
        url, missing = self._processes["learner"].metrics_url(), "the learner is not ready"
        if url:
            try:
                self._latest, missing = parse_sample(_get(f"{url}/status"), time.time()), ""
            except (BadSample, OSError) as problem:
                missing = f"the learner's status: {problem}"
        return Observation(
            status=RLJobStatus(),
            members=members,
            learner=self._latest,
            missing=missing,
            checkpoint=_checkpoint(self._latest),
            max_actors=len(os.sched_getaffinity(0)),
        )

    def apply(self, decision: Decision) -> None:
        """Start and drain what the decision names; both are idempotent."""
        for name in decision.start:
            if name not in self._processes:
                self._add(name, Role.ACTOR, self._actor_options())
            self._processes[name].start()
        for name in decision.drain:
            process = self._processes[name]
            process.drain(self._drain_seconds[process.role])

    def pids(self) -> dict[str, int]:
        """Process ids of the members that run now."""
        return {name: pid for name, process in self._processes.items() if (pid := process.pid) is not None}

    def close(self) -> None:
        """End whatever still runs, at once, and remove the sockets' folder."""
        for process in self._processes.values():
            process.kill()
        self._addresses.remove()

    def _add(self, name: str, role: Role, options: list[str]) -> None:
        announce = self._run_dir / "roles" / f"{name}.json"
        command = [sys.executable, "-m", "rljob.cli", "worker", str(role), "--job", str(self._job_file)]
        command += ["--run-dir", str(self._run_dir), "--name", name, "--announce", str(announce), *options]
        log = self._run_dir / "logs" / f"{name}.log"
        self._processes[name] = RoleProcess(name, role, command, log=log, announce=announce)

    def _weights_options(self) -> list[str]:
        return ["--weights", self._addresses.weights, "--notice", self._addresses.notice]

    def _actor_options(self) -> list[str]:
        ingest = [word for endpoint in self._addresses.replay_ingest for word in ("--replay-ingest", endpoint)]
        return ingest + self._weights_options()

    def _learner_options(self) -> list[str]:
        sample = [word for endpoint in self._addresses.replay_sample for word in ("--replay-sample", endpoint)]
        # A learner that comes back after a crash must go on from its checkpoint, so it always may; only a fresh run folder
        # has none to go on from.
        return [*sample, *self._weights_options(), "--resume", "latest"]


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=2.0) as answer:
        content: bytes = answer.read(MAX_STATUS_BYTES)
    return content


def _checkpoint(sample: LearnerSample | None) -> CheckpointFacts:
    """The newest checkpoint as the learner tells; it verifies what it writes."""
    told = sample.document.get("checkpoint") if sample is not None else None
    if not isinstance(told, dict) or not told.get("path"):
        return CheckpointFacts()
    state = CheckpointState.VERIFIED if told.get("state") == "Valid" else CheckpointState.STORAGE_ERROR
    path = Path(str(told["path"]))
    try:
        written = path.stat().st_mtime
    except OSError:
        return CheckpointFacts(message=f"{path} is gone")
    digest = f"sha256:{told.get('digest', '')}"
    return CheckpointFacts(
        state, int(told.get("step", 0)), written, path.absolute().as_uri(), digest, str(told.get("message", ""))
    )
