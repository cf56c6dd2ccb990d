"""Jobs that wait for each other: each holds nodes' room that the rest of the other needs. It only makes messages."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rljob.api.conditions import Reason

from rljob_operator.core.member import Member
from rljob_operator.core.observed import Observation
from rljob_operator.core.rules.failures import CORE
from rljob_operator.kube.job.members import Pod, members


def with_rivals(observed: Observation, others: Iterable[tuple[str, Sequence[Pod]]], now_seconds: float) -> Observation:
    """What is observed, where a member finds no node with the other jobs of the namespace, name and pods, that wait so, too."""
    if not _waits_with_a_part(observed.members):
        return observed
    rivals = sorted(name for name, pods in others if _waits_with_a_part(members(pods, now_seconds)))
    if not rivals:
        return observed
    said = f"{', '.join(rivals)} of this namespace waits for nodes, too, while some of its pods have one: suspend all but one"
    told = [
        replace(member, waiting_message=f"{said}; {member.waiting_message}")
        if member.waiting is Reason.UNSCHEDULABLE
        else member
        for member in observed.members
    ]
    return replace(observed, members=tuple(told))


def _waits_with_a_part(found: Sequence[Member]) -> bool:
    """Whether a pod that learning needs finds no node while another of the same job has one."""
    waits = any(member.waiting is Reason.UNSCHEDULABLE and member.role in CORE for member in found)
    return waits and any(member.alive and member.placed for member in found)
