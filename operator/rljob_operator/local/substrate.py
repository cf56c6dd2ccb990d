"""The local substrate: a job's members are processes of this machine; `observe` and `apply` are its two verbs."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from rljob.api import RLJob

from rljob_operator.local.addresses import Addresses
from rljob_operator.local.process import RoleProcess
from rljob_operator.model import Decision, LearnerSample, Member, Role

DRAIN_SECONDS = {Role.EVALUATOR: 3.0, Role.LEARNER: 60.0, Role.REPLAY: 60.0, Role.INFERENCE: 3.0}
"""How long a member may take to leave before it is killed: the learner writes a checkpoint, the replay its durable state.
Actors have ``actors.drainSeconds``."""


class LocalSubstrate:
    """Starts, watches and drains the processes of one job in ``run_dir``."""

    def __init__(self, job: RLJob, job_file: Path, run_dir: Path) -> None:
        self._run_dir = run_dir
        replay = job.spec.replay
        shards = replay.shards if replay is not None else 0  # without replay, actors send to the learner
        self._drain_seconds = DRAIN_SECONDS | {Role.ACTOR: float(job.spec.actors.drain_seconds)}
        central, own_servers = job.spec.actors.inference == "Central", job.spec.inference.replicas
        self._addresses = Addresses.create(max(1, shards), max(1, own_servers) if central else 0)
        (run_dir / "roles").mkdir(parents=True, exist_ok=True)
        (run_dir / "logs").mkdir(parents=True, exist_ok=True)
        self._job_file = job_file
        self._processes: dict[str, RoleProcess] = {}
        for k in range(shards):
            ingest, sample = self._addresses.replay_ingest[k], self._addresses.replay_sample[k]
            self._add(f"replay-{k}", Role.REPLAY, ["--replay-ingest", ingest, "--replay-sample", sample])
        served_by_learner = self._inference_options() if central and own_servers == 0 else []
        self._add("learner", Role.LEARNER, self._learner_options(replay=replay is not None) + served_by_learner)
        for k in range(own_servers):
            address = self._addresses.inference[k]
            self._add(f"inference-{k}", Role.INFERENCE, ["--inference", address, *self._weights_options()])
        for k in range(job.spec.actors.replicas):
            self._add(f"actor-{k}", Role.ACTOR, self._actor_options())
        if job.spec.evaluator.enabled:
            self._add("evaluator", Role.EVALUATOR, self._weights_options())

    def observe(self) -> tuple[tuple[Member, ...], LearnerSample | None]:
        """Every member as it is now, and the learner's status where it answers."""
        members = tuple(process.observe() for process in self._processes.values())
        url = self._processes["learner"].metrics_url()
        status = _get_json(f"{url}/status") if url else None
        return members, LearnerSample(status, time.monotonic()) if status is not None else None

    def apply(self, decision: Decision) -> None:
        """Start and drain what the decision names; both are idempotent."""
        for name in decision.start:
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
        return ingest + self._weights_options() + self._inference_options()

    def _inference_options(self) -> list[str]:
        return [word for endpoint in self._addresses.inference for word in ("--inference", endpoint)]

    def _learner_options(self, *, replay: bool) -> list[str]:
        endpoints = self._addresses.replay_sample if replay else self._addresses.replay_ingest
        data = [
            word for endpoint in endpoints for word in ("--replay-sample" if replay else "--replay-ingest", endpoint)
        ]
        # A learner that comes back after a crash must go on from its checkpoint, so it always may; only a fresh run folder
        # has none to go on from.
        return [*data, *self._weights_options(), "--resume", "latest"]


def _get_json(url: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            document = json.load(answer)
    except (urllib.error.URLError, TimeoutError, OSError, json.JSONDecodeError):
        return None
    return document if isinstance(document, dict) else None
