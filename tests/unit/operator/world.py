"""A world that does whatever it likes to a job: what it may do is drawn (`Plan`), when it does it follows from the plan's seed.

Members start, work, end, vanish, flap and are replaced under their own names; the learner tells the truth, nonsense or nothing;
a user edits, a queue gives and takes, clocks jump. `World.heal` ends all of that: from then on everything goes well.
The world keeps its own books of what happened, so that a test can compare them with what the controller says.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from rljob.api import RLJob
from rljob.api.conditions import Reason
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.decision import Decision
from rljob_operator.core.desired import Refusal, Session
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import Admission, CheckpointFacts, CheckpointState

from tests.support.controller import decided, look_at
from tests.unit.operator.plans import Fault, Plan, edits, job_of

WORKED_SECONDS = 10.0


@dataclass
class World:
    """The world of one job, its books, and a controller whose status goes through JSON now and then, as after a restart.

    ``quick_ends`` are ends in a row of each name before it worked that count as a crash loop; ``ends`` how many there were at
    all, ``counting_ends`` those of all but actors, ``counted`` how many the controller has counted; ``starts``
    when each name was started since it last worked.
    """

    plan: Plan
    now: float = 1_700_000_000.0
    latest: float = 0.0
    """The latest time that it was before the clock was set."""
    edit: tuple[str, ...] = ()
    members: dict[str, Member] = field(default_factory=dict)
    status: RLJobStatus = field(default_factory=RLJobStatus)
    observed: dict[str, Any] = field(default_factory=dict)
    healthy: bool = False
    updates: int = 0
    frames: int = 0
    life: int = 0
    mass_end: bool = False
    counting_ends: int = 0
    ends: int = 0
    counted: int = 0
    quick_ends: Counter[str] = field(default_factory=Counter)
    starts: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.plan.seed)
        self.observed = {"keeps_remains": self.plan.keeps_remains, "generation": 1}
        self.observed["checkpoints_are"] = self.chance.choice(("", "on claim c"))
        self.cursed = self.chance.sample(range(self.plan.actors), self.plan.actors // 3)
        self.edits = edits(self.plan)

    @property
    def job(self) -> RLJob:
        return job_of(self.plan, self.edit)

    def seen(self) -> ReconcileContext:
        return look_at(self.job, self.status, self.now, members=tuple(self.members.values()), **self.observed)

    def look(self) -> tuple[ReconcileContext, Decision]:
        """One look of the controller at the world, before anything of it is applied."""
        seen = self.seen()
        decision = decided(seen)
        self.status = decision.status
        if self._often(0.3):
            self.status = through_json(decision.status)
        return seen, decision

    # ---------------------------------------------------------------------------------------------------- what happens

    def turn(self) -> None:
        """Some time passes, and something happens."""
        if self.healthy:
            self.now += 5.0
        else:
            self._time_passes()
            self._user()
            self._surroundings()
        for member in list(self.members.values()):
            after = self._lived(member)
            if after is None:
                del self.members[member.name]
                self.starts.pop(member.name, None)
            elif after is not member:
                self.members[member.name] = after
        self._learner()

    def heal(self) -> None:
        """From now on everything goes well, and the job is the one that was meant. A clock that was set back is right again:
        until it is, nothing is waited for, nor forgiven."""
        self.now = max(self.now, self.latest)
        self.healthy, self.mass_end, self.edit = True, False, ()
        self.observed = {"keeps_remains": self.plan.keeps_remains, "generation": self.observed["generation"] + 1}
        if self.updates:
            self.observed["checkpoint"] = self._checkpoint(CheckpointState.VERIFIED)

    def apply(self, decision: Decision) -> None:
        """Do what was decided; a sloppy substrate does so most of the time and is asked again."""
        for name in decision.start:
            if not self._does(Fault.SLOPPY, 0.1):
                self._start(name)
        for name in decision.drain:
            if not self._does(Fault.SLOPPY, 0.1):
                self.members[name] = replace(self.members[name], phase=Phase.DRAINING, since_seconds=self.now)
        for name in decision.remove:
            self.members.pop(name)
        if self.healthy and decision.checkpoint_seconds is not None:
            self.observed["checkpoint"] = self._checkpoint(CheckpointState.VERIFIED)

    def _start(self, name: str) -> None:
        self.life += 1
        self.starts.setdefault(name, []).append(self.now)
        self.members[name] = Member(name, Role.of(name), Phase.STARTING, self.now, f"life-{self.life}")

    def _often(self, probability: float) -> bool:
        return self.chance.random() < probability

    def _does(self, fault: Fault, probability: float) -> bool:
        return not self.healthy and fault in self.plan.faults and self.chance.random() < probability

    def _time_passes(self) -> None:
        self.now += self.chance.choice((0.0, 0.5, 1.0, 5.0, 5.0, 30.0))
        if self._does(Fault.CLOCK, 0.015):
            self.latest = max(self.latest, self.now)
            self.now += self.chance.choice((-3600.0, 400.0, 30_000.0))
            self.starts.clear()  # they can't be compared with what comes

    def _user(self) -> None:
        if self._often(0.03):
            self.edit = self.chance.choice(self.edits)
            self.observed["generation"] += 1

    # ------------------------------------------------------------------------------------------------------ of members

    def _lived(self, member: Member) -> Member | None:
        """A member a moment later; None where it has vanished."""
        if member.phase is Phase.EXITED:
            return None if self._does(Fault.VANISH, 0.02) else member
        if member.phase is Phase.DRAINING:
            if self._often(0.6):
                code = self.chance.choice((0, -9, 1))
                return replace(member, phase=Phase.EXITED, since_seconds=self.now, asked=True, exit_code=code)
            return member
        if self._does(Fault.VANISH, 0.01):
            return None
        if self._does(Fault.NODES, 0.05):
            node = self.chance.choice(("cpu-1", "cpu-2"))
            member = replace(member, node_lost=self._often(0.3), node_name=node)
        elif self.healthy:
            member = replace(member, node_lost=False)
        if self._does(Fault.REPLACE, 0.005):
            self.life += 1
            self.starts.pop(member.name, None)
            return Member(member.name, member.role, Phase.STARTING, self.now, f"life-{self.life}")
        ended = self._ended(member)
        if ended is not None:
            return ended
        if member.phase is Phase.READY:
            if self._does(Fault.FLAP, 0.02):
                return replace(member, phase=Phase.STARTING, since_seconds=self.now)
            if self.now - (member.ready_seconds or 0.0) >= WORKED_SECONDS:
                self.starts[member.name] = []
                self.quick_ends[member.name] = 0
            return member
        if self._does(Fault.STUCK, 0.05):
            why = self.chance.choice((Reason.UNSCHEDULABLE, Reason.IMAGE_PULL_FAILED))
            return replace(member, waiting=why, waiting_message="0/3 nodes are available")
        if self.healthy or self._often(0.2 if member.waiting else 0.5):
            ready = member.ready_seconds or self.now
            return replace(member, phase=Phase.READY, ready_seconds=ready, since_seconds=self.now, waiting=None)
        return member

    def _ended(self, member: Member) -> Member | None:
        """The member after an unexpected end; None where it goes on."""
        disrupted, likely = "", 0.0
        code: int | None = 1
        cursed = member.role is Role.ACTOR and int(member.name.partition("-")[2]) in self.cursed
        if self._does(Fault.LOOP, 0.7 if cursed else 0.0):
            likely = 1.0
        elif self._does(Fault.DISRUPT, 0.1):
            likely, disrupted, code = 1.0, "spot notice", self.chance.choice((143, 0, 1, None))
        elif self._does(Fault.END, 0.01):
            likely, code = 1.0, self.chance.choice((0, 1, 137, 143, -9))
        elif self._does(Fault.FATAL, 0.001):
            likely, code = 1.0, self.chance.choice((3, 3, 3, 70, 78))
        elif self.mass_end and self._often(0.9):
            likely, code = 1.0, -9
        if not likely:
            return None
        self._write_down(member, disrupted, code)
        return replace(
            member,
            phase=Phase.EXITED,
            since_seconds=self.now,
            exit_code=code,
            disrupted=disrupted,
            last_words="bang",
            waiting=None,
        )

    def _write_down(self, member: Member, disrupted: str, code: int | None) -> None:
        self.ends += 1
        self.counting_ends += member.role is not Role.ACTOR
        if member.ready_seconds is not None and self.now - member.ready_seconds >= WORKED_SECONDS:
            self.starts[member.name] = []
            self.quick_ends[member.name] = 0
        elif not disrupted and not (code == 3 and any("rules" in each for each in self.edit)):
            self.quick_ends[member.name] += 1

    # ------------------------------------------------------------------------------------------------- what is around

    def _surroundings(self) -> None:
        self.mass_end = self._does(Fault.MASS_END, 0.01)
        if self._does(Fault.CHECKPOINT, 0.1):
            state = self.chance.choice((CheckpointState.VERIFIED, CheckpointState.VERIFIED, *CheckpointState))
            self.observed["checkpoint"] = self._checkpoint(state)
        elif self.updates and self._often(0.1):
            self.observed["checkpoint"] = self._checkpoint(CheckpointState.VERIFIED)
        if self._does(Fault.CHECKPOINT, 0.01):
            self.observed["checkpoint_requested_at"] = self.chance.choice(("", f"{self.now}", "now"))
        if self._does(Fault.REFUSAL, 0.02):
            refusal = Refusal(Reason.POD_TEMPLATE_REJECTED, "words", blocking=self._often(0.5))
            self.observed["refusal"] = refusal if self._often(0.3) else None
        if self._does(Fault.QUOTA, 0.02):
            most = self.chance.choice((None, 1, 5, self.plan.actors // 2))
            held = Admission(True, Reason.QUOTA_RESERVED, max_actors=most)
            self.observed["admission"] = self.chance.choice((None, held, held, Admission(False, Reason.EVICTED)))
        if self._does(Fault.MACHINE, 0.02):
            self.observed["max_actors"] = self.chance.choice((None, None, 1, 4))
            self.observed["cores"] = self.chance.choice((None, 2, 5))
        if self._does(Fault.SESSION, 0.02):
            session = Session(self.chance.uniform(0, 100), 50.0, self._often(0.1))
            self.observed["session"] = self.chance.choice((None, None, session))

    def _checkpoint(self, state: CheckpointState) -> CheckpointFacts:
        facts = CheckpointFacts(state, self.updates, self.now, "file:///c", "sha256:0", "words", self.now)
        return CheckpointFacts() if state is CheckpointState.MISSING else facts

    def _learner(self) -> None:
        learner = self.members.get("learner")
        silent = self._does(Fault.SILENCE, 0.2)
        if learner is None or learner.phase is not Phase.READY or silent:
            self.observed["missing"] = "timed out"
            return
        slow = not self.healthy and self._often(0.2)
        self.updates = max(0, self.updates + (0 if slow else 50))
        if self._does(Fault.SILENCE, 0.01):
            self.updates //= 2
        if Fault.SUCCESS in self.plan.faults:
            self.frames += self.chance.choice((0, 40, 400))
        document = self._figures()
        if self._does(Fault.SILENCE, 0.1):
            document[self.chance.choice(sorted(document))] = self.chance.choice((float("nan"), -1, "x", None, 1e99))
        taken = self.now - (self.chance.choice((1.0, 100.0)) if self._does(Fault.SILENCE, 0.5) else 0.0)
        said = replace(LearnerStatus.lenient(document), taken_seconds=taken)
        if said.updates is None:
            self.observed["missing"] = "no count of updates"
        else:
            self.observed |= {"learner": said, "missing": ""}

    def _figures(self) -> dict[str, Any]:
        luck = 0.5 if self.healthy else self.chance.random()
        low = -20.0 if Fault.SUCCESS not in self.plan.faults else 30.0 * self.chance.random() - 20.0
        return {
            "updates": self.updates,
            "raw_frames_total": self.frames,
            "learner_wait_fraction": luck,
            "actors_blocked_fraction": 0.0 if self.healthy else self.chance.random(),
            "consumption_per_second": 1000.0 * luck,
            "production_per_second": 100.0 * luck,
            "queue_depth_batches": 64.0 * luck,
            "queue_bound_batches": 64.0,
            "policy_lag_updates_p95": 100.0 if self.healthy else 500.0 * self.chance.random(),
            "evaluations": [{"mean": low, "standard_error": 1.0, "episodes": 20}],
        }


def through_json(status: RLJobStatus) -> RLJobStatus:
    """The status as a controller finds it that was started just now."""
    after = RLJobStatus.model_validate_json(status.model_dump_json(by_alias=True, exclude_none=True))
    assert after == status, "nothing is lost on the way through JSON"
    return after
