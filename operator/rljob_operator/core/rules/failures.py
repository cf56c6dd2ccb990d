"""Unexpected ends of members: what is done about each, how they count, and when they are too many."""

from rljob.api.conditions import Reason
from rljob.api.controller_memory import MAX_REMEMBERED_MEMBERS, MemberMemory, OutcomeMemory
from rljob.api.exit_codes import EXIT_CONFIGURATION, EXIT_NON_FINITE_LOSS, EXIT_PROTOCOL, EXIT_RANK_LOST
from rljob.api.lifecycle import FailureRule
from rljob.api.status import MAX_FAILURES, Failure
from rljob.api.status_model import rfc3339, stamp

from rljob_operator.core.context import ReconcileContext, bounded, failed
from rljob_operator.core.member import Member, Phase, Role

QUICK_ENDS_OF_A_CRASH_LOOP = 5
"""So many ends in a row before a member worked make a crash loop."""

LOOPING_ENDS = 3
"""After so many a member counts as crash-looping, and leaves first; after fewer it counts as restarting."""

WORKED_SECONDS = 10.0
"""A member that ends before it was ready for so long has not worked."""

FORGIVEN_SECONDS = 3600.0
"""After an hour of health an earlier failure says nothing of the next one."""

FORGET_SECONDS = 600.0
"""A member that is gone and not started again is forgotten after this time."""

RESTART_DELAY_SECONDS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Wait before the start after the n-th end in a row before the member worked; the last holds from there on."""

LONGEST_LIFE = 64
"""Characters of an incarnation that are remembered: a pod's uid has 36, and a status has thousands of them."""

CORE = (Role.REPLAY, Role.LEARNER, Role.INFERENCE)
"""Roles that learning can't do without."""


# ------------------------------------------------------------------------------------------------- one end, one action


def action(context: ReconcileContext, member: Member) -> tuple[str, FailureRule | None]:
    """What is done about a member that ended unasked, and the rule of failurePolicy that says so (None: the default).

    Without a rule a disruption is never counted, nor an image of another protocol (76), nor a learner's process that has lost
    another (68), whose end counts; exit code 78 and the learner's 70 fail
    the job, and all else is a restart, an end with 0 among it: no role ends by itself.
    """
    code = exit_code(member)
    for rule in context.spec.failure_policy.rules:
        if _matches(rule, member, code):
            return rule.action, rule
    if member.disrupted or code in (EXIT_PROTOCOL, EXIT_RANK_LOST):
        return "RestartRoleAndIgnoreBackoff", None
    if code == EXIT_CONFIGURATION or (member.role is Role.LEARNER and code == EXIT_NON_FINITE_LOSS):
        return "FailJob", None
    return "RestartRole", None


def exit_code(member: Member) -> int | None:
    """The exit code as Kubernetes gives it: 128 + n for signal n."""
    code = member.exit_code
    return 128 - code if code is not None and code < 0 else code


def with_code(code: int | None) -> str:
    """How messages tell of an end: `` with exit code 1``; nothing where no code is known."""
    return "" if code is None else f" with exit code {code}"


def words(member: Member) -> str:
    """Why a member ended: what took it away, and what it or its substrate reported at last."""
    code, said = exit_code(member) or 0, ": ".join(each for each in (member.disrupted, member.last_words) if each)
    return said or (f"ended by signal {code - 128}" if code > 128 else "no last words")


def _matches(rule: FailureRule, member: Member, code: int | None) -> bool:
    if rule.roles and member.role.capitalize() not in rule.roles:
        return False
    if rule.on_exit_codes is not None:
        if code is None or member.disrupted:  # the exit code of one that was taken away does not tell why
            return False
        return (code in rule.on_exit_codes.values) == (rule.on_exit_codes.operator == "In")
    return any((wanted.type, wanted.status) in member.pod_conditions for wanted in rule.on_pod_conditions)


# --------------------------------------------------------------------------------------------------- counting and memory


def account(context: ReconcileContext) -> ReconcileContext:
    """Deal with each new unasked end once: count it, list it among the failures, and remember it for the restart's delay."""
    known = context.remembered()
    new = [m for m in context.failed() if _is_new(context, m, known.get(m.name))]
    by_name = {m.name: m for m in context.observed.members} if known else {}
    kept = [each for each in context.memory.members if _still_matters(context, each, by_name.get(each.name))]
    if not new:
        return context if len(kept) == len(context.memory.members) else context.with_memory(members=kept)
    new.sort(key=lambda member: _counts(context, member.role))  # of many ends at once these stay in the list
    counted, ignored, failures = (
        context.status.restarts.counted,
        context.status.restarts.ignored,
        list(context.status.failures),
    )
    entries = {each.name: each for each in kept}
    for member in new:
        what, _ = action(context, member)
        if _counts(context, member.role) and what in ("RestartRole", "FailJob"):
            counted += 1
            context = context.with_memory(last_counted_failure=context.now)
        else:
            ignored += 1
        if what != "Ignore":
            failures = [*failures[1 - MAX_FAILURES :], _failure(context, member, what)]
        entries[member.name] = _remembered(context, member, entries.get(member.name), what)
    members = list(entries.values())
    if len(members) > MAX_REMEMBERED_MEMBERS:
        members = sorted(members, key=_worth)[:MAX_REMEMBERED_MEMBERS]
    context = context.with_memory(members=members)
    restarts = context.status.restarts.model_copy(update={"counted": counted, "ignored": ignored})
    return context.with_status(restarts=restarts, failures=failures)


def _worth(each: MemberMemory) -> tuple[object, ...]:
    """By what ends are kept where there is no room for all: every member but an actor has room, and of the actors those go
    first whose last end tells nothing of the next."""
    is_actor = Role.of(each.name) is Role.ACTOR
    return is_actor, -each.quick_ends, -each.vain_starts, -each.time, each.name


def forgive(context: ReconcileContext) -> ReconcileContext:
    """The count returns to 0 when the core has been healthy for ``FORGIVEN_SECONDS``."""
    if context.status.restarts.counted == 0:
        return context
    found = [context.status.condition(name) for name in ("LearnerReady", "ReplayReady", "InferenceReady")]
    ready = [c for c in found if c is not None]  # a role that the job does not have has no condition
    if not ready or any(c.status != "True" for c in ready):
        return context
    healthy_since = max([context.memory.last_counted_failure or 0.0, *(c.last_transition_time for c in ready)])
    if context.watched_for(healthy_since) < FORGIVEN_SECONDS:
        return context
    return context.with_status(restarts=context.status.restarts.model_copy(update={"counted": 0}))


def restart_due(context: ReconcileContext, member: Member | None, remembered: MemberMemory | None) -> float:
    """Seconds until an ended member may be started again; 0 or less where it is due.

    ``member`` is None where nothing is left of it to be seen: its end was seen, and the wait goes on.
    """
    if remembered is None:
        return 0.0
    ended = remembered.time
    if member is not None and member.phase is not Phase.ABSENT:
        if remembered.incarnation != life(member):
            return 0.0
        ended = min(ended, member.since_seconds)
    delay = RESTART_DELAY_SECONDS[min(remembered.vain_starts, len(RESTART_DELAY_SECONDS) - 1)]
    return delay - abs(context.now - ended)  # no wait of an hour where the clock was set back by one


def life(member: Member) -> str:
    """What tells this life of a member from others; a substrate that knows no incarnations has the time of its end."""
    return bounded(member.incarnation or rfc3339(max(0.0, member.since_seconds)), LONGEST_LIFE)


def _is_new(context: ReconcileContext, member: Member, remembered: MemberMemory | None) -> bool:
    """An actor that is not remembered where there is no room for more may well be one that was left out."""
    if remembered is not None:
        return remembered.incarnation != life(member)
    return member.role is not Role.ACTOR or len(context.memory.members) < MAX_REMEMBERED_MEMBERS


def _still_matters(context: ReconcileContext, each: MemberMemory, member: Member | None) -> bool:
    """Whether an end is still remembered: until the member has worked in a new life, or has been gone for long."""
    if member is None or member.phase is Phase.ABSENT:
        return not each.dismissed and context.since(each.time) < FORGET_SECONDS
    if member.phase is Phase.READY:
        return context.since(member.ready_seconds or member.since_seconds) < WORKED_SECONDS
    return not (member.phase is Phase.EXITED and member.asked)


def _remembered(context: ReconcileContext, member: Member, before: MemberMemory | None, what: str) -> MemberMemory:
    ready_for = 0.0 if member.ready_seconds is None else member.since_seconds - member.ready_seconds
    quick, vain = (before.quick_ends, before.vain_starts) if before is not None else (0, 0)
    if ready_for >= WORKED_SECONDS:
        quick = vain = 0
    else:
        vain += 1
        quick += not member.disrupted and what == "RestartRole"
    return MemberMemory.model_construct(
        name=member.name,
        incarnation=life(member),
        quick_ends=quick,
        vain_starts=vain,
        time=context.now,
        dismissed=False,
    )


def _failure(context: ReconcileContext, member: Member, what: str) -> Failure:
    code = exit_code(member)
    if member.disrupted:
        reason = "Disrupted"
    elif member.hung:
        reason = "Hung"
    elif code == 0:
        reason = "Ended"
    else:
        reason = "Killed" if code is not None and code > 128 else "Error"
    return Failure.model_construct(
        time=stamp(context.now),
        role=member.role.capitalize(),
        pod_name=bounded(member.pod_name or member.name, 253),
        exit_code=code,
        reason=reason,
        action=what,
        message=bounded(words(member), 256),
    )


# ------------------------------------------------------------------------------------------------------- ends of the job


def policy_rule(context: ReconcileContext) -> OutcomeMemory | None:
    """A rule of failurePolicy, or an exit code after which a restart does not help, fails the job."""
    for member in context.failed():
        what, rule = action(context, member)
        if what != "FailJob":
            continue
        code, said = exit_code(member), words(member)
        if rule is not None:
            message = f"rule {rule.name}: {member.name} ended{with_code(code)}: {said}"
            return failed(context, Reason.FAILURE_POLICY_RULE, message)
        if code == EXIT_NON_FINITE_LOSS:
            return failed(context, Reason.NON_FINITE_LOSS, said)
        return failed(context, Reason.FAILURE_POLICY_RULE, f"{member.name} refused the job: {said}")
    return None


def backoff_limit(context: ReconcileContext) -> OutcomeMemory | None:
    """The roles that count have failed more than ``backoffLimit`` times in all."""
    counted, limit = context.status.restarts.counted, context.spec.backoff_limit
    if counted <= limit:
        return None
    own = [f for f in context.status.failures if _counts(context, Role(f.role.lower())) and f.action == "RestartRole"]
    last = f"; last {own[-1].pod_name} ended{with_code(own[-1].exit_code)}: {own[-1].message}" if own else ""
    message = f"{counted} failures that count, backoffLimit is {limit}{last}"
    return failed(context, Reason.BACKOFF_LIMIT_EXCEEDED, message)


def _counts(context: ReconcileContext, role: Role) -> bool:
    """Whether failures of ``role`` count: those of the core, and of an evaluator that the job's success waits for."""
    success = context.spec.success_policy
    return role in CORE or (role is Role.EVALUATOR and (success.target_return or success.metric) is not None)
