"""What must hold in every state and of every turn, whatever has happened before."""

from rljob.api.status import RLJobStatus
from rljob_operator.core.turn import StatusWrite

from tests.search.jobs import SUSPEND_TIMEOUT_SECONDS, SUSPENDED, SmallJob
from tests.search.pods import Cause, Pod, Stage
from tests.search.statuses import NOW, Statuses
from tests.search.turns import Turned, view
from tests.search.world import World

_LOST = 45
"""Seconds after its deletion from which on a pod that is still there counts as lost: its grace period, and fifteen beyond."""


class Violation(Exception):
    """``rule`` names what does not hold; ``str()`` says it with the figures."""

    def __init__(self, rule: str, words: str) -> None:
        super().__init__(f"{rule}: {words}")
        self.rule = rule


class Invariants:
    """The invariants of one job."""

    def __init__(self, job: SmallJob, statuses: Statuses) -> None:
        self.job, self.statuses = job, statuses

    def turn(self, world: World, turned: Turned) -> None:
        """Check a turn before anything of it is done."""
        before, after = self.statuses[turned.before], turned.decision.status
        self._ends(world, before, after)
        self._tells(world, after)
        self._counts(world, turned, before, after)
        self._calls(world, turned)

    def state(self, world: World) -> None:
        """Check a state."""
        standing: dict[str, Pod] = {}
        for pod in world.pods:
            if pod.alive and pod.deleted < 0:
                if pod.member in standing:
                    raise Violation("nothing doubled", f"{standing[pod.member].uid} and {pod.uid} both run")
                standing[pod.member] = pod

    # -------------------------------------------------------------------------------------------------------- turns

    def _ends(self, world: World, before: RLJobStatus, after: RLJobStatus) -> None:
        was, outcome = before.controller.outcome, after.controller.outcome
        if was is not None:
            if outcome is None or (outcome.state, outcome.reason) != (was.state, was.reason):
                raise Violation("an end is for good", f"{was.reason} has become {outcome}")
            return
        told = {"observed_generation": before.observed_generation, "conditions": before.conditions}
        if before.finished and after.model_copy(update=told) != before:
            raise Violation("an end is for good", "the status of a finished job changed")
        if outcome is None:
            return
        if outcome.state == "Complete":
            if not world.won:
                raise Violation("Complete after a verdict alone", f"{outcome.reason} ({outcome.message})")
            return
        limit = self.job.specs[world.spec].job.spec.backoff_limit
        reasons = {
            "BackoffLimitExceeded": world.real > limit,
            "FailurePolicyRule": world.fatal,
            "NonFiniteLoss": world.fatal,
            "StartupDeadlineExceeded": world.stood >= 100 or world.real > 0,
            # A learner that is not heard stands still as far as can be known.
            "ProgressDeadlineExceeded": world.stood >= 100 or world.real > 0 or _unheard_seconds(world) >= 50,
        }
        if not reasons.get(outcome.reason, True):
            told = f"{world.real} failures of its own, all in place and nothing learned for {world.stood} s"
            raise Violation("Failed by a failure of its own alone", f"{outcome.reason} ({outcome.message}): {told}")

    def _tells(self, world: World, after: RLJobStatus) -> None:
        left = [pod.uid for pod in view(world) if pod.alive and pod.deleted < _LOST and not (pod.gone or pod.lost)]
        if after.is_true("Suspended") and left:
            raise Violation("suspended is suspended", f"it is said to be while {', '.join(left)} run")
        answer, here = world.memory.answer, world.learner()
        found_none = world.saved is None and here is not None and answer is not None and answer.age < here.began
        if after.is_true("CheckpointValid") and not after.finished and (world.going or found_none):
            raise Violation("a checkpoint that is lost is told", "CheckpointValid is True")

    def _counts(self, world: World, turned: Turned, before: RLJobStatus, after: RLJobStatus) -> None:
        known = set(world.memory.counted if world.memory.status >= 0 else world.counted)
        # A pod on a lost node outlives its successor where that is suspended, and is then one more disruption: one too many in
        # restarts.ignored, which no limit asks for.
        lost = {pod.uid for pod in view(world) if pod.lost and pod.deleted >= 0}
        twice = (known & turned.dealt_with) - lost
        if twice:
            raise Violation("each end counts once", f"{', '.join(sorted(twice))} counted again")
        new = [pod for pod in view(world) if pod.uid in turned.dealt_with]
        if asked := [pod.uid for pod in new if pod.cause == Cause.ASKED]:
            raise Violation("what was asked for is no failure", f"{', '.join(asked)} is dealt with as one")
        grown = max(0, after.restarts.counted - before.restarts.counted)
        ignored = after.restarts.ignored - before.restarts.ignored
        if grown + ignored > len(turned.dealt_with):
            words = ", ".join(sorted(turned.dealt_with)) or "nothing new"
            raise Violation("each end counts once", f"{grown} counted and {ignored} ignored for {words}")
        own = [pod for pod in new if pod.member in self.job.counting and pod.cause in (Cause.OWN, Cause.EITHER)]
        if grown > len(own):
            words = ", ".join(f"{pod.uid} ({Cause(pod.cause).name.lower()})" for pod in new)
            raise Violation("only failures count", f"{grown} counted of {words or 'nothing that ended'}")

    def _calls(self, world: World, turned: Turned) -> None:
        over = turned.decision.status.controller.outcome is not None
        calls = turned.calls
        if not calls:
            return
        if len(set(calls)) < len(calls):
            raise Violation("nothing is done twice", ", ".join(f"{op.verb} {op.uid}" for op in calls))
        about = {op.uid for op in calls if op.verb in ("ask", "delete")}
        created = {op.uid for op in calls if op.verb == "create"}
        if created and over:
            raise Violation("an end is for good", f"{', '.join(sorted(created))} would start after it")
        if created and world.spec == SUSPENDED:
            raise Violation("suspended is suspended", f"{', '.join(sorted(created))} would start")
        if any(op.verb == "delete job" for op in calls):
            raise Violation("nothing of its user's is deleted", "the job has no ttl")
        stays = not over and world.spec != SUSPENDED
        unstored: set[str] = set()
        if turned.write is not StatusWrite.BEFORE_ACTING:
            unstored = turned.dealt_with.union(world.memory.counted).difference(world.counted)
        for pod in view(world):
            if pod.gone:
                continue
            works = pod.alive and pod.deleted < 0
            if pod.member in created and (works or (pod.stage == Stage.RUNNING and 0 <= pod.deleted < _LOST)):
                raise Violation("one at a time", f"{pod.member} would start beside {pod.uid}")
            if stays and works and pod.uid in about and pod.member in self.job.core:
                raise Violation("what runs is left alone", f"{pod.uid} is asked to leave while the job runs")
            if pod.uid in unstored and (pod.uid in about or pod.member in created):
                raise Violation(
                    "what was counted is stored first", f"{pod.uid} goes before the status that has counted it"
                )
        if unsaved := self._unsaved(world, turned):
            raise Violation("a suspended job is saved", unsaved)

    def _unsaved(self, world: World, turned: Turned) -> str:
        """A learner that is asked to leave for a suspension before what it had learned was saved."""
        status = turned.decision.status
        if world.spec != SUSPENDED or status.controller.outcome is not None:
            return ""
        for op in turned.calls:
            pod = world.pod(op.uid) if op.verb == "delete" else None
            if pod is None or pod.member != "learner" or pod.stage != Stage.RUNNING or pod.deleted >= 0:
                continue
            advance, saved, suspension = status.controller.advance, world.saved, status.controller.suspension
            if suspension is not None and suspension.since <= NOW - SUSPEND_TIMEOUT_SECONDS:
                return ""
            # As far as it had come when it was asked to save: it goes on until it is asked to leave, and saves again then.
            learned = advance.updates if advance is not None else 0
            known = min(learned, suspension.checkpoint_step if suspension is not None else learned) // 10
            if known > 0 and (saved is None or saved.step < min(known, pod.work)):
                return f"{pod.uid} at {10 * pod.work} updates leaves with {saved} saved"
        return ""

    # ---------------------------------------------------------------------------------------------------- good weather

    def settled(self, world: World) -> bool:
        """Whether all is said: it trains, is over, is suspended as wanted, or a condition names why not."""
        status = self.statuses[world.status]
        if status.finished:
            return True
        ready = status.condition("Ready")
        if ready is None:
            return False
        if world.spec == SUSPENDED:
            return status.is_true("Suspended")
        return ready.status == "True"


def _unheard_seconds(world: World) -> int:
    """For how long a learner that works has not answered, or was not asked."""
    if world.learner() is None or world.memory.answer is None:
        return 0
    return world.memory.answer.age
