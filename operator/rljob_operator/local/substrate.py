"""The local substrate: a job's members are processes of this machine; `observe` and `apply` are its two verbs.

What a cluster's operator and kubelets ask of pods, for the processes of one machine: whether each is alive, and of the learner
its status and checkpoints. A thread of its own sends the requests, so that a hanging or slow member never holds up the control
loop.
"""

import asyncio
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rljob.api import RLJob
from rljob.api.learner_status import LearnerStatus
from rljob.threads import SupervisedThread

from rljob_operator.core.decision import Decision
from rljob_operator.core.member import Member, Phase, Role, number
from rljob_operator.core.observed import CheckpointFacts, Observation, checkpoint_facts
from rljob_operator.local.addresses import Addresses, job_token_file, read_token
from rljob_operator.local.launch import Launcher
from rljob_operator.local.process import RoleProcess, announce_path
from rljob_operator.local.run_folder import read_json
from rljob_operator.polls.poll import Alive, Answer, LearnerPoll, Poll, Rhythm, Silence
from rljob_operator.polls.reach import TIMEOUT_SECONDS, Direct, Reach
from rljob_operator.surroundings import DRAIN_SECONDS, own_variables, rank_variables

ALIVE = Rhythm(2.0, 0.5, math.inf)
"""A silent member is asked again soon, so that it is soon noticed when it answers."""
STATUS = Rhythm(0.5)
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class MemberPolls:
    """Asks whom ``watch`` names, until closed. ``now`` answers Unix seconds."""

    def __init__(
        self, now: Callable[[], float] = time.time, status: Rhythm = STATUS, reach: Reach | None = None
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._defect: BaseException | None = None
        reach = reach or Direct()
        self._alive: Poll[str] = Poll(_nobody, reach, rhythm=ALIVE, now=now, on_defect=self._end)
        self._learner: Poll[str] = Poll(_nobody, reach, rhythm=status, now=now, on_defect=self._end)
        self._stop = threading.Event()
        self._thread = SupervisedThread("member-polls", self._run, until=self._stop)
        self._thread.start()

    def watch(
        self,
        alive: Iterable[Alive],
        learner: LearnerPoll | None,
        checkpoint_seconds: float | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """These are the members that should answer now. ``checkpoint_seconds``: the request for a checkpoint that the learner has
        to answer, or None; ``changes``: what it is to follow. Raises ``ThreadEnded`` where a defect has ended the asking."""
        self._thread.check()
        members, learners = list(alive), [learner] if learner is not None else []

        def follow() -> None:
            self._alive.follow("", members)
            self._learner.follow("", learners, checkpoint_seconds, changes=changes)

        self._loop.call_soon_threadsafe(follow)

    def silence(self, incarnation: str) -> Silence | None:
        """How this life of a member fails to answer; None where it answers, or was not asked yet."""
        return self._alive.silence("", incarnation)

    @property
    def answer(self) -> Answer:
        """What is known of the learner."""
        return self._learner.answer("")

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()
        if self._thread.alive:
            self._loop.call_soon_threadsafe(self._loop.stop)
        # Not sooner, and not by the thread: a loop that is closed refuses what ``watch`` and ``close`` schedule.
        if self._thread.close(timeout_seconds=TIMEOUT_SECONDS + 1.0):
            self._loop.close()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            if self._defect is not None:
                raise self._defect
        finally:
            for poll in (self._alive, self._learner):
                self._loop.run_until_complete(poll.close())

    def _end(self, defect: BaseException) -> None:
        self._defect = defect
        self._loop.stop()


def _nobody(job: str) -> None:
    """The control loop looks by itself."""


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
        self._last_words = run_dir.absolute() / "roles" / "learner.words.json"
        """What the learner says of its checkpoints at its end. It is removed before a learner is started."""
        self._learner_epoch = self._meeting_port = 0
        self._token_file = job_token_file(run_dir)
        self._processes: dict[str, RoleProcess] = {}
        self._token = read_token(self._token_file)
        self._asked: tuple[list[Alive], LearnerPoll | None] = ([], None)
        self._announced = False
        self._polls = MemberPolls(clock)

    def observe(self, job: RLJob) -> Observation:
        """Every member as it is now, the learner's newest figures, and the newest checkpoint."""
        members, answer = self._members(), self._polls.answer
        return Observation(
            members=members,
            learner=answer.status,
            missing=answer.missing if self._announced else "the learner has not announced itself yet",
            checkpoint=self._checkpoint(answer.status),
            max_actors=self._max_actors,
            cores=self._cores,
            untracked=self._untracked(),
        )

    def _checkpoint(self, said: LearnerStatus | None) -> CheckpointFacts:
        """The newest that a learner has verified, by its last words or what it said while it was up. Nothing is read here:
        a bucket would be asked twice a second."""
        words = LearnerStatus.lenient(read_json(self._last_words)).checkpoint
        return checkpoint_facts(words or (said.checkpoint if said is not None else None))

    def apply(self, job: RLJob, decision: Decision) -> None:
        """Start and drain what the decision names, and pass on what the learner is asked for; all of it is idempotent."""
        self._learner_epoch = decision.status.controller.learner_epoch
        if decision.start:
            self._arrange(job)
        if not set(self._learners).isdisjoint(decision.start):
            # Where another takes the port meanwhile, they end, and try the next.
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self._meeting_port = probe.getsockname()[1]
        for name in decision.start:
            if name not in self._processes:
                self._processes[name] = RoleProcess(
                    name, Role.of(name), self._command(name), self._run_dir, self._launcher.launch, self._clock
                )
            self._processes[name].command = self._command(name)
            self._processes[name].variables = own_variables(job, name, dict(os.environ))
            if peers := rank_variables(job, name, "127.0.0.1", self._meeting_port):
                self._processes[name].peers = {**peers, "GLOO_SOCKET_IFNAME": _LOOPBACK}
            if self._processes[name].role is Role.LEARNER and self._processes[name].pid is None:
                self._last_words.unlink(missing_ok=True)
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
        self._learners = spec.learner.members
        shards = spec.replay.shards if spec.replay is not None else spec.learner.processes
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
            if url is not None and member.name == self._learners[0]:
                learner = LearnerPoll(member.incarnation, url, self._token)
            found.append(member)
        self._asked, self._announced = (alive, learner), learner is not None
        return tuple(found)

    def _command(self, name: str) -> list[str]:
        return [
            str(Role.of(name)),
            "--job",
            str(self._manifest),
            "--run-dir",
            str(self._run_dir.absolute()),
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
                *(["--last-words", str(self._last_words)] if name == self._learners[0] else ()),
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
