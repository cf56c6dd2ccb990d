"""What must hold at every look at a job, whatever the world does to it."""

from rljob.api import RLJob
from rljob.api.controller_memory import MAX_REMEMBERED_MEMBERS
from rljob_operator.core.autoscaling.warmup import STALE_AFTER_SECONDS
from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.decision import Decision
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules.failures import restart_due
from rljob_operator.core.rules.start_and_drain import STARTUP_WAVE

from tests.unit.operator.world import WORKED_SECONDS, World

MOST_STARTS_IN_VAIN = 6
"""Starts of one name within ten seconds where none of its lives worked: at 0, 0.5, 1.5, 3.5 and 7.5 seconds, and one to spare."""


def check(world: World, seen: ReconcileContext, decision: Decision) -> None:
    """All of it, for one look."""
    job, now = world.job, world.now
    _members(seen, decision)
    _end(job, seen, decision, now)
    _number_of_actors(job, seen, decision, now)
    _starts(job, seen, decision)
    _books(world, seen, decision)
    _words(job, seen, decision, now)


def _members(seen: ReconcileContext, decision: Decision) -> None:
    phases = {m.name: m.phase for m in seen.observed.members}
    assert (len(set(decision.start)), len(set(decision.drain))) == (len(decision.start), len(decision.drain))
    assert not set(decision.start) & set(decision.drain)
    assert not set(decision.start) & set(decision.remove)
    assert all(phases.get(n, Phase.ABSENT) in (Phase.ABSENT, Phase.EXITED) for n in decision.start)
    assert all(phases[n] in (Phase.STARTING, Phase.READY) for n in decision.drain)
    assert all(phases[n] is Phase.EXITED for n in decision.remove)


def _end(job: RLJob, seen: ReconcileContext, decision: Decision, now: float) -> None:
    before, after = seen.status, decision.status
    outcome = before.controller.outcome
    if outcome is not None:
        said = after.controller.outcome.model_copy(update={"message": outcome.message})
        assert said == outcome, "an end is decided once"
        assert after.controller.outcome.message.startswith(outcome.message[:200]), "and may add what was lost by it"
        assert decision.start == (), "nothing is made again for a job that ends"
    if before.finished:
        said = {"observed_generation": 0, "conditions": ()}
        assert after.model_copy(update=said) == before.model_copy(update=said), "a finished job's status never changes"
        others = [[each for each in status.conditions if each.type != "Accepted"] for status in (before, after)]
        assert others[0] == others[1], "but that it says of an edit that it has no effect"
        assert decision.finished
    assert not (after.is_true("Failed") and after.is_true("Complete"))
    if after.is_true("Failed"):
        assert after.is_true("FailureTarget")
    if after.finished and not before.finished:
        assert after.completion_time == round(now, 3)
        left = [m for m in seen.observed.members if m.alive]
        assert not any(m.role is Role.LEARNER for m in left), "the accelerator is free"
        assert not left
    if job.spec.suspend or (seen.observed.admission is not None and not seen.observed.admission.admitted):
        assert decision.start == (), "nothing starts for a job that is to be suspended"
        assert outcome is not None or after.controller.outcome is None, "nor is it judged"
    reason = after.controller.outcome.reason if after.controller.outcome is not None and outcome is None else ""
    waited = ("StartupDeadlineExceeded", "ProgressDeadlineExceeded")
    looked = before.progress.last_update_time
    assert looked is None or now - looked <= 120 or reason not in waited, "no wait runs out while no controller looks"


def _number_of_actors(job: RLJob, seen: ReconcileContext, decision: Decision, now: float) -> None:
    before, after = seen.status.autoscaling, decision.status.autoscaling
    scaling = job.spec.autoscaling
    if decision.status.controller.outcome is not None or after == before:
        return
    hard = [] if seen.observed.max_actors is None else [seen.observed.max_actors]
    assert after.desired_replicas <= min([*hard, 10**9]), "no number exceeds the machine's"
    if scaling.mode == "Disabled":
        assert after.desired_replicas == min([*hard, job.spec.actors.replicas])
        return
    least = min([scaling.min_replicas, *hard])
    cores = [] if seen.observed.cores is None else [max(least, seen.observed.cores)]
    quota = seen.quota() if scaling.mode == "Internal" else []
    most = max(least, min([scaling.max_replicas, *hard, *cores, *quota]))
    assert least <= after.desired_replicas <= most
    if scaling.mode == "Internal" and before.memory.get("requested") == job.spec.actors.replicas:
        age = None if seen.observed.learner is None else now - seen.observed.learner.taken_seconds
        fresh = age is not None and -1 <= age <= STALE_AFTER_SECONDS
        held = max(least, min(before.desired_replicas, most))
        assert fresh or after.desired_replicas == held, "no decision from a stale sample"


def _starts(job: RLJob, seen: ReconcileContext, decision: Decision) -> None:
    """Never more than wanted, waves are kept, and only what the spec wants starts."""
    wanted, after = wanted_names(job), decision.status.autoscaling
    started = [n for n in decision.start if Role.of(n) is Role.ACTOR]
    assert set(decision.start) - set(started) <= wanted
    running = running_actors(seen)
    if started or any(Role.of(n) is Role.ACTOR for n in decision.drain):
        stay = [m for m in running if m.name not in decision.drain]
        allowed = min([after.desired_replicas, *seen.quota()])
        assert len(stay) + len(started) <= allowed, "who is asked to leave has no place any more"
    if started:
        assert sum(m.phase is Phase.STARTING for m in running) + len(started) <= STARTUP_WAVE


def _books(world: World, seen: ReconcileContext, decision: Decision) -> None:
    """Each end is counted once at most, nothing is started again and again, and only crash loops count as such."""
    before, after = seen.status.restarts, decision.status.restarts
    world.counted += max(0, after.counted - before.counted)
    assert world.counted <= world.counting_ends
    assert world.counted + after.ignored <= world.ends
    for name in decision.start:
        recent = [moment for moment in world.starts.get(name, ()) if world.now - moment < WORKED_SECONDS]
        assert len(recent) < MOST_STARTS_IN_VAIN, f"{name} was started at {recent}, and again"
    outcome = decision.status.controller.outcome
    if seen.status.controller.outcome is None and outcome is not None and outcome.reason == "ActorsCrashLooping":
        memory = decision.status.controller.members
        dismissed = {each.name for each in memory if each.dismissed}
        names = {m.name for m in seen.observed.members if m.phase is not Phase.DRAINING and not m.asked}
        waiting = {each.name for each in memory if each.quick_ends and restart_due(seen, None, each) > 0}
        names |= waiting - {m.name for m in seen.observed.members}
        actors = [name for name in names - dismissed if Role.of(name) is Role.ACTOR]
        places = decision.status.autoscaling.desired_replicas
        ends = sorted(world.quick_ends[name] for name in actors)[:places]
        all_there_are = len(ends) if decision.status.controller.started is None else max(len(ends), places)
        assert 2 * sum(count >= 5 for count in ends) > all_there_are, "even the best of them are too few"


def _words(job: RLJob, seen: ReconcileContext, decision: Decision, now: float) -> None:
    after = decision.status
    assert decision.requeue_seconds is None or decision.requeue_seconds >= 0
    assert len(after.failures) <= 5
    assert len(after.controller.members) <= MAX_REMEMBERED_MEMBERS
    assert all(len(c.message) <= 1024 for c in after.conditions)
    assert len({c.type for c in after.conditions}) == len(after.conditions)
    if seen.status.finished:
        return
    types = {c.type for c in after.conditions}
    has_servers = job.spec.actors.inference == "Central" and job.spec.inference.replicas > 0
    assert ("InferenceReady" in types) == has_servers, "nothing is said of a role that the job does not have"
    assert ("ReplayReady" in types) == (job.spec.replay is not None)
    if after.state == "Running":
        ready = {m.name for m in seen.observed.members if m.phase is Phase.READY}
        assert {n for n in wanted_names(job) if Role.of(n) is not Role.EVALUATOR} <= ready
        waits = [m for m in running_actors(seen) if m.waiting is not None and now - m.since_seconds >= 60]
        assert not waits, "an actor that finds no place is missing"
        assert after.is_true("ActorsReady")


def wanted_names(job: RLJob) -> set[str]:
    """Members that the spec names: all but the actors, of which only the number counts."""
    spec = job.spec
    shards = spec.replay.shards if spec.replay is not None else 0
    servers = spec.inference.replicas if spec.actors.inference == "Central" else 0
    names = {"learner", *(f"replay-{k}" for k in range(shards)), *(f"inference-{k}" for k in range(servers))}
    return names | ({"evaluator"} if spec.evaluator.enabled else set())


def running_actors(seen: ReconcileContext) -> list[Member]:
    """Actors that play, or start."""
    return [m for m in seen.observed.members if m.role is Role.ACTOR and m.phase in (Phase.STARTING, Phase.READY)]
