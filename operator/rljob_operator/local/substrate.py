"""The local substrate: a job's members are processes of this machine; `observe` and `apply` are its two verbs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rljob.api import RLJob

from rljob_operator.core.decision import Decision
from rljob_operator.core.member import Member, Phase, Role, number
from rljob_operator.core.observed import Observation
from rljob_operator.local.addresses import Addresses, job_token_file, read_token
from rljob_operator.local.checkpoints import checkpoints, last_words_path
from rljob_operator.local.launch import Launcher
from rljob_operator.local.member_polls import MemberPolls
from rljob_operator.local.process import RoleProcess, announce_path
from rljob_operator.polls.poll import Alive, Learner
from rljob_operator.surroundings import DRAIN_SECONDS, own_variables


class LocalSubstrate:
    """Starts, watches and drains the processes of the job in ``run_dir``.

    ``manifest`` is the file that roles are started from. ``max_actors`` bounds the actors beside the job's own limit; without
    it ``cores`` bounds scaled ones.
    ``launcher`` is its own from here on; ``clock`` answers Unix seconds, ``untracked`` what an `Observation` says of trackers.
    """

    def __init__(
        self,
        run_dir: Path,
        manifest: Path,
        job: RLJob,
        max_actors: int | None,
        cores: int,
        launcher: Launcher,
        clock: Callable[[], float] = time.time,
        untracked: Callable[[], Mapping[str, str] | None] = lambda: None,
    ) -> None:
        self._run_dir = run_dir
        self._launcher = launcher
        self._clock = clock
        self._untracked = untracked
        self._manifest = manifest
        self._max_actors, self._cores = max_actors, cores if max_actors is None else None
        self._arrange(job)
        self._checkpoints = checkpoints(job, run_dir)
        self._learner_epoch = 0
        self._token_file = job_token_file(run_dir)
        self._processes: dict[str, RoleProcess] = {}
        self._token = read_token(self._token_file)
        self._asked: tuple[list[Alive], Learner | None] = ([], None)
        self._announced = False
        self._polls = MemberPolls(clock)

    def observe(self, job: RLJob) -> Observation:
        """Every member as it is now, the learner's newest figures, and the newest checkpoint."""
        members, answer = self._members(), self._polls.answer
        return Observation(
            members=members,
            learner=answer.status,
            missing=answer.missing if self._announced else "the learner has not announced itself yet",
            checkpoint=self._checkpoints.look(answer.status.checkpoint if answer.status is not None else None),
            max_actors=self._max_actors,
            cores=self._cores,
            untracked=self._untracked(),
        )

    def apply(self, job: RLJob, decision: Decision) -> None:
        """Start and drain what the decision names, and pass on what the learner is asked for; all of it is idempotent."""
        self._learner_epoch = decision.status.controller.learner_epoch
        if decision.start:
            self._arrange(job)
        for name in decision.start:
            if name not in self._processes:
                self._processes[name] = RoleProcess(
                    name, Role.of(name), self._command(name), self._run_dir, self._launcher.launch, self._clock
                )
            self._processes[name].command = self._command(name)
            self._processes[name].variables = own_variables(job, name, dict(os.environ))
            if self._processes[name].role is Role.LEARNER and self._processes[name].pid is None:
                last_words_path(self._run_dir).unlink(missing_ok=True)
            self._processes[name].start()
        for name in decision.drain:
            process = self._processes[name]
            process.drain(DRAIN_SECONDS[process.role])
        for name in decision.replace:
            self._processes[name].end_hung()
        for name in decision.remove:
            self._processes.pop(name).forget()
        self._polls.watch(*self._asked, decision.checkpoint_seconds, decision.changes)

    def close(self, *, kill: bool) -> None:
        """End whatever still runs: at once with ``kill``, else in good order, which goes on when this process has ended."""
        self._polls.close()
        if kill:
            for process in self._processes.values():
                process.kill()
        self._launcher.close()
        if not any(process.pid for process in self._processes.values()):
            self._addresses.remove()

    def _arrange(self, job: RLJob) -> None:
        """Which role connects to which address. It changes at most while nothing runs. Without a replay service actors send to
        the learner; without servers of its own they ask it for actions.
        """
        spec = job.spec
        central = spec.actors.inference == "Central"
        self._has_replay = spec.replay is not None
        self._learner_serves = central and spec.inference.replicas == 0
        shards = spec.replay.shards if spec.replay is not None else 1
        self._addresses = Addresses.of(self._run_dir, shards, max(1, spec.inference.replicas) if central else 0)

    def _members(self) -> tuple[Member, ...]:
        """Every process as it is, and whether those that serve answer; the learner is asked for more, also while it leaves."""
        found, alive, learner = [], [], None
        for process in self._processes.values():
            member, url = process.observe(), process.metrics_url()
            if url is not None and member.phase is Phase.READY:
                alive.append(Alive(member.incarnation, url))
                silence = self._polls.silence(member.incarnation)
                if silence is not None:
                    member = replace(member, silent_seconds=silence.heard_seconds, silent_because=silence.because)
            if url is not None and member.role is Role.LEARNER:
                learner = Learner(member.incarnation, url, self._token)
            found.append(member)
        self._asked, self._announced = (alive, learner), learner is not None
        return tuple(found)

    def _command(self, name: str) -> list[str]:
        return [
            str(Role.of(name)),
            "--job",
            str(self._manifest),
            "--run-dir",
            str(self._run_dir),
            "--name",
            name,
            "--announce",
            str(announce_path(self._run_dir, name)),
            *self._options(name),
        ]

    def _options(self, name: str) -> list[str]:
        meeting = self._addresses
        weights = ["--weights", meeting.weights, "--notice", meeting.notice]
        ingest = [word for endpoint in meeting.replay_ingest for word in ("--replay-ingest", endpoint)]
        sample = [word for endpoint in meeting.replay_sample for word in ("--replay-sample", endpoint)]
        inference = [word for endpoint in meeting.inference for word in ("--inference", endpoint)]
        role = Role.of(name)
        if role is Role.REPLAY:
            shard = number(name)
            return ["--replay-ingest", meeting.replay_ingest[shard], "--replay-sample", meeting.replay_sample[shard]]
        if role is Role.LEARNER:
            # A learner that comes back after a crash must go on from its checkpoint, so it always may; only a fresh run
            # folder has none to go on from.
            token = ["--token-file", str(self._token_file)] if self._token_file is not None else []
            return [
                *(sample if self._has_replay else ingest),
                *weights,
                *(inference if self._learner_serves else ()),
                *token,
                "--last-words",
                str(last_words_path(self._run_dir)),
                "--resume",
                "latest",
                "--epoch",
                str(self._learner_epoch),
            ]
        if role is Role.INFERENCE:
            return ["--inference", meeting.inference[number(name)], *weights]
        if role is Role.ACTOR:
            return [*ingest, *weights, *inference]
        return weights
