"""Breadth first over distinct states, by the number of disturbances.

A disturbance is any event but the one that comes next in good weather, where all that is under way goes on in a fixed order:
calls are made and succeed, the watch tells, the operator looks, pods come up and leave, the learner advances, time passes. The
states of the first layer are those of a job that nothing disturbs: it comes up, trains, is suspended, resumed, and wins. The
next layer has what one disturbance anywhere on that way leads to and where good weather leads from there, and so on.
"""

import gc
import re
import time
from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from operator import eq

from tests.search.events import LATER, SHORTLY, Event, Events
from tests.search.invariants import Invariants, Violation
from tests.search.jobs import SmallJob
from tests.search.statuses import Statuses
from tests.search.turns import Operator, Turned, caught_up
from tests.search.world import World

MANY_SHORTLY = 4
"""So many seconds pass one by one."""
LONGEST_WAY = 300
"""Steps of good weather within which everything has settled."""
MOST_FINDINGS = 12
IN_GOOD_ORDER = "leaves with 0"
"""No disturbance either: with what code a role leaves that was told to is its image's choice; releases before 143 had 0."""
_WHO = re.compile(r"[a-z]+(-\d+)?:\d+|[a-z]+-\d+")


Later = tuple[World, dict[int, int]]
"""A state, and which of the events after it led to a new one (event -> number): the states themselves would fill the memory."""


@dataclass
class Finding:
    """A rule that does not hold, and the events that lead there from a new job."""

    rule: str
    words: str
    path: list[str]
    steps: list[int]
    disturbed_by: frozenset[str]


@dataclass
class Result:
    """What was explored of one job. ``states`` are all distinct ones that were found, ``explored`` those of which every event was
    followed, ``layers`` the same by the number of disturbances, ``complete`` how many layers were explored to their end."""

    job: str
    states: int = 0
    explored: int = 0
    transitions: int = 0
    layers: list[int] = field(default_factory=list)
    complete: int = 0
    turns: int = 0
    statuses: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)


class Explorer:
    """The search of one job."""

    def __init__(self, job: SmallJob) -> None:
        self.job = job
        self.statuses = Statuses()
        self.operator = Operator(job, self.statuses)
        self.invariants = Invariants(job, self.statuses)
        self.events = Events(job, self.statuses, self.operator, self._judged)
        self.new = World(self.statuses.new)
        self.result = Result(job.name)
        self._problem: Violation | None = None
        self._known: dict[int, int] = {}
        self._parents, self._steps = array("q"), array("H")
        self._settles: set[int] = set()
        self._usual: list[str] = []

    def run(self, seconds: float, states: int, wanted: str = "") -> Result:
        """Explore until the time is over, so many states are known, or a finding against the ``wanted`` rule is made."""
        began, cpu = time.monotonic(), time.process_time()
        gc.disable()  # nothing here goes in circles, and there are millions of tuples
        result = self.result

        def over() -> bool:
            if time.monotonic() - began >= seconds or len(self._parents) >= states:
                return True
            return any(finding.rule == wanted for finding in result.findings)

        here: deque[tuple[int, World]] = self._undisturbed()
        layer: deque[Later] = deque()
        while here or layer:
            before, upcoming = result.explored, deque[Later]()
            while (here or layer) and not over():
                if not here:
                    here.extend(self._reached(*layer.popleft()))
                self._expand(*here.popleft(), here, upcoming)
            result.layers.append(result.explored - before)
            if here or layer:
                break
            result.complete += 1
            layer = upcoming
        result.states, result.turns, result.statuses = len(self._parents), self.operator.turns, len(self.statuses)
        result.seconds, result.cpu_seconds = time.monotonic() - began, time.process_time() - cpu
        return result

    def _reached(self, world: World, numbers: dict[int, int]) -> list[tuple[int, World]]:
        """Those of the states after one that were left for later."""
        return [(numbers[k], after) for k, (_, after) in enumerate(self.events.after(world)) if k in numbers]

    def _expand(self, number: int, world: World, here: deque[tuple[int, World]], upcoming: deque[Later]) -> None:
        """Add what comes after a state: what good weather brings to this layer, all else to the next."""
        later: dict[int, int] = {}
        good = self._in_good_weather(number, world)
        self.result.explored += 1
        self._problem = None
        for step, (name, after) in enumerate(self.events.after(world)):
            self.result.transitions += 1
            place = hash(after)
            if place not in self._known:
                found = self._add(place, after, number, step, as_before=after.pods is world.pods)
                if found is not None and (name == good or name.endswith(IN_GOOD_ORDER)):
                    here.append((found, after))
                elif found is not None:
                    later[step] = found
        if later:
            upcoming.append((world, later))
        if self._problem is not None:
            self._note(self._problem, number)

    def _add(self, place: int, world: World, parent: int, step: int, *, as_before: bool = False) -> int | None:
        """The state's number; None where a rule does not hold in it."""
        number = self._known[place] = len(self._parents)
        self._parents.append(parent)
        self._steps.append(step)
        if as_before:
            return number
        try:
            self.invariants.state(world)
        except Violation as problem:
            self._note(problem, number)
            return None
        return number

    # --------------------------------------------------------------------------------------------------- good weather

    def better(self, world: World) -> Event | None:
        """What happens next where nothing bad does; None where all has settled."""
        events = self.events
        if world.pending:
            return next(iter(events.of_the_operator(world)))
        if world.seen is not None:
            return "the watch catches up", caught_up(world)
        for event in events.turned(world):
            return event
        if world.memory.status >= 0:
            return "the operator stores its status", events.stored(world)
        for pod in world.pods:
            for event in events.of_a_kubelet(world, pod):
                return event
            if pod.lost and pod.deleted < 0 and pod.alive:
                return f"{pod.uid} is evicted by the taint of its node", events.evicted(world, pod)
        if (polled := events.polled(world)) is not None and _says_more(world, polled):
            return "the learner is asked how it is", polled
        if self.invariants.settled(world):
            return None
        if world.memory.asks >= 0 and (saved := events.saved(world)) is not None:
            return "the learner writes a checkpoint", saved
        if (advanced := events.advanced(world)) is not None:
            return "the learner advances", advanced
        due = None if world.memory.refused else self.operator.turn(world).decision.requeue_seconds
        return events.ticked(world, SHORTLY if due is not None and due <= MANY_SHORTLY * SHORTLY else LATER)

    def _in_good_weather(self, number: int, world: World) -> str:
        """See that from here the job comes to where it should be, within bounded steps; what comes next, empty where nothing."""
        way: list[int] = []
        seen: set[int] = set()
        names: list[str] = []
        self._problem = None
        while True:
            place = hash(world)
            if place in self._settles and names:
                break
            if place in seen or len(way) > LONGEST_WAY:
                words = f"after {len(way)} steps of good weather the job is {self._told(world)}"
                self._problem = Violation("good weather leads somewhere", words)
            else:
                way.append(place)
                seen.add(place)
                event = self.better(world)
            if self._problem is not None:
                self._note(self._problem, number, names)
                return names[0] if names else ""
            if event is None:
                break
            names.append(event[0])
            world = event[1]
        self._settles.update(way)
        return names[0] if names else ""

    def _told(self, world: World) -> str:
        status = self.statuses[world.status]
        said = ", ".join(f"{c.type}={c.status}/{c.reason}" for c in status.conditions)
        return f"{status.state or 'new'} ({said}) with {', '.join(pod.uid for pod in world.pods) or 'no pod'}"

    def _undisturbed(self) -> deque[tuple[int, World]]:
        """The states of a job that comes up, trains, is suspended and resumed, and wins."""
        world, number = self.new, 0
        layer: deque[tuple[int, World]] = deque([(0, world)])
        self._add(hash(world), world, -1, 0)

        def follow(wish: str) -> bool:
            nonlocal world, number
            for step, (name, after) in enumerate(self.events.after(world)):
                if name == wish:
                    place = hash(after)
                    if place not in self._known:
                        self._add(place, after, number, step)
                        layer.append((self._known[place], after))
                    world, number = after, self._known[place]
                    self._usual.append(name)
                    return True
            return False

        for wish in ("", "the user suspends it", "the user runs it as it was", "the learner advances"):
            while wish and follow(wish) and wish == "the learner advances":
                continue
            for _ in range(LONGEST_WAY):
                event = self.better(world)
                if event is None or not follow(event[0]):
                    break
        return layer

    # ------------------------------------------------------------------------------------------------------- findings

    def _judged(self, world: World, turned: Turned) -> bool:
        try:
            self.invariants.turn(world, turned)
        except Violation as problem:
            self._problem = problem
            return False
        return True

    def _note(self, problem: Violation, number: int, rest: Iterable[str] = ()) -> None:
        """Keep the finding, unless a shorter one has no other disturbances than it."""
        findings = self.result.findings
        if len(findings) >= MOST_FINDINGS:
            return
        steps = self._way(number)
        way, names, disturbed = self.replayed(steps), list[str](), list[str]()
        usual, world = True, self.new
        for k, (name, after) in enumerate(way):
            usual = usual and self._usual[k : k + 1] == [name]
            event = None if usual else self.better(world)
            if not usual and (event is None or event[0] != name):
                disturbed.append(_WHO.sub("it", name))
            names.append(name)
            world = after
        path = self._told_shortly(names)
        kinds = frozenset(each.removesuffix(", unseen") for each in disturbed if not each.startswith("the user"))
        if any(each.rule == problem.rule and each.disturbed_by <= kinds for each in findings):
            return
        more = list(rest)
        path += ["-- good weather from here --", *more] if more else []
        findings.append(Finding(problem.rule, str(problem), path, steps, kinds))

    def _told_shortly(self, names: list[str]) -> list[str]:
        """The events from where something is different from the course that nothing disturbs."""
        alike = sum(1 for _ in takewhile(bool, map(eq, names, self._usual)))
        return [f"-- {alike} steps as ever, to: {self._usual[alike - 1]} --", *names[alike:]] if alike else names

    def _way(self, number: int) -> list[int]:
        steps = []
        while self._parents[number] >= 0:
            steps.append(self._steps[number])
            number = self._parents[number]
        return steps[::-1]

    def replayed(self, steps: list[int]) -> list[Event]:
        """The events of a way from a new job."""
        world, found = self.new, []
        for step in steps:
            event = next(event for k, event in enumerate(self.events.after(world)) if k == step)
            found.append(event)
            world = event[1]
        return found

    def broken(self, world: World) -> str:
        """What the operator's next turn in a state breaks; empty where that is nothing."""
        self._problem = None
        for _ in self.events.after(world):
            pass
        return str(self._problem or "")


def _says_more(world: World, polled: World) -> bool:
    """Whether the learner has more to tell than how long ago it was asked."""
    before, after = world.memory.answer, polled.memory.answer
    if before is None or after is None:
        return True
    if (before.work, before.won) != (after.work, after.won):
        return True
    was, now = before.checkpoint, after.checkpoint
    return (was and (was.step, was.requested)) != (now and (now.step, now.requested))
