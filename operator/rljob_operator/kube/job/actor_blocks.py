"""How many actors a job asks a queue for, and in which blocks. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rljob.api import RLJobSpec
from rljob.api.conditions import ConditionType, Reason
from rljob.api.status import RLJobStatus

QUOTA: Final = "Quota"
"""``status.autoscaling.limitedBy`` where the queue's quota is the limit."""


@dataclass(frozen=True, slots=True)
class Block:
    """A Workload of actors. ``reserved``: it has quota, whether its actors may run with it or not."""

    number: int
    actors: int
    admitted: bool
    reserved: bool


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done about the blocks: numbers of those to give back, and (number, actors) of those to ask for."""

    give_back: tuple[int, ...] = ()
    ask_for: tuple[tuple[int, int], ...] = ()


def wanted_actors(spec: RLJobSpec, status: RLJobStatus) -> int:
    """The actors to have quota for: those that its user or an autoscaler asks for, or what the law would want without a quota."""
    scaling, asked = spec.autoscaling, spec.requested_actors
    if scaling.mode != "Internal":
        return asked
    active, found = status.condition(ConditionType.SCALING_ACTIVE), status.autoscaling
    if active is None or active.reason != Reason.VALID_METRIC_FOUND:
        return max(asked, found.desired_replicas)  # nothing better is known yet
    wanted = found.recommended_replicas if found.limited_by == QUOTA else found.desired_replicas
    return max(found.desired_replicas, min(scaling.max_replicas, wanted))


def change(spec: RLJobSpec, first: int, blocks: Iterable[Block], wanted: int, alive: int) -> Change:
    """Blocks for ``wanted`` actors, of whom ``first`` are in the core; ``alive`` of them run, or are about to leave.

    A block that is not needed goes as a whole: at once where it has no quota, else when its actors are gone. A number that moves
    gets full blocks, one at a time; a fixed one gets all it needs.
    """
    known = sorted(blocks, key=lambda each: (not each.reserved, each.number))
    total = first + sum(each.actors for each in known)
    give_back = []
    while known and total - known[-1].actors >= wanted:
        last = known[-1]
        running = first + sum(each.actors for each in known if each.admitted) - last.actors
        if last.reserved and alive > running:
            break
        give_back.append(last.number)
        total -= known.pop().actors
    fixed = spec.autoscaling.mode == "Disabled"
    if not fixed and any(not each.admitted for each in known):
        return Change(tuple(give_back))
    most = wanted if fixed else spec.autoscaling.max_replicas
    size, used = spec.scheduling.kueue.actor_block_size, {each.number for each in known} | set(give_back)
    ask_for: list[tuple[int, int]] = []
    number = 0
    while total < wanted and (fixed or not ask_for):
        while number in used:
            number += 1
        used.add(number)
        ask_for.append((number, min(size, most - total)))
        total += ask_for[-1][1]
    return Change(tuple(give_back), tuple(ask_for))
