"""What was sampled of one member of a job, added up, and its table of functions. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

Stack = tuple[str, ...]
"""Functions, the outermost first."""

ENDED: Final = "threads that have ended"
NATIVE: Final = "threads without Python"
BELOW: Final = "processes below it"
_MOST_FUNCTIONS: Final = 10
_LEAST_CORES: Final = 0.005
_IDLE_SHARE: Final = 0.02
"""A thread that wants less of the processor time that all threads want has waited."""


class MemberProfile:
    """The parts that a member's ``/profile`` gave (`rljob.telemetry.profiler`), in order.

    ``stacks``: by thread, how often each was seen. ``cores``, ``waiting``: by thread, and of all that has no stacks here, seconds
    on a core, and waiting for one. ``problem``: why there is no more of it; empty where there is all.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.boot = ""
        self.parts: list[Mapping[str, Any]] = []
        self.problem = ""
        self.seconds = 0.0
        self.stacks: dict[str, Counter[Stack]] = {}
        self.cores: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()

    def add(self, part: Mapping[str, Any]) -> None:
        """One more part. Raises KeyError, TypeError, ValueError or IndexError for what is none."""
        frames, threads = part["frames"], part["threads"]
        for thread, positions, count in part["stacks"]:
            name = threads.get(str(thread), (ENDED,))[0]
            self.stacks.setdefault(name, Counter())[tuple(frames[each] for each in positions)] += count
        for name, ran, waited in threads.values():
            self.cores[name] += ran
            self.waiting[name] += waited
        self.cores.update({NATIVE: part["native"], BELOW: part["below"]})
        self.seconds += (part["ended_ns"] - part["began_ns"]) * 1e-9
        self.parts.append(part)

    @property
    def busy(self) -> list[str]:
        """Threads with Python stacks that have computed, the busiest first; all of them where the system does not say."""
        least = _IDLE_SHARE * sum(map(self._wanted, self.stacks))
        return sorted((name for name in self.stacks if self._wanted(name) >= least), key=self._wanted, reverse=True)

    def _wanted(self, thread: str) -> float:
        """Seconds on a core and seconds that it was ready for one."""
        return self.cores[thread] + self.waiting[thread]

    def folded(self) -> str:
        """Collapsed stacks, as flamegraph.pl, inferno and speedscope read them: a line a stack, the thread as outermost frame."""
        return "".join(
            f"{';'.join((thread, *stack))} {count}\n"
            for thread, stacks in sorted(self.stacks.items())
            for stack, count in sorted(stacks.items())
        )

    def functions(self) -> list[tuple[str, str, float, float]]:
        """Those with most time of their own in busy threads: (function, thread, its own share of the thread's time, its share
        with what it has called)."""
        found = []
        for thread in self.busy:
            own, whole = Counter[str](), Counter[str]()
            for stack, count in self.stacks[thread].items():
                own[stack[-1]] += count
                whole.update(dict.fromkeys(stack, count))
            seen = own.total()
            found += [(name, thread, count / seen, whole[name] / seen) for name, count in own.items()]
        return sorted(found, key=lambda each: -each[2])[:_MOST_FUNCTIONS]

    def summary(self) -> list[str]:
        """How much was sampled, what its threads take of a core, what of it can't be seen in stacks, and what is missing."""
        shares = [
            f"{name} {self.cores[name] / self.seconds:.2f}"
            + (f" (and {waits:.2f} waiting for one)" if waits > 0.05 else "")
            for name in sorted(self.cores, key=self._wanted, reverse=True)
            for waits in [self.waiting[name] / self.seconds]
            if self._wanted(name) > _LEAST_CORES * self.seconds
        ]
        samples, left_out = (sum(int(part[each]) for part in self.parts) for each in ("samples", "left_out"))
        cut = f"the time line has the beginning of each second: {left_out:,} stages were left out" if left_out else ""
        first = f"{self.seconds:.1f} s, {samples:,} samples; of a core: {', '.join(shares) or 'next to nothing'}"
        return [first, *filter(None, (cut, self.problem))]

    def table(self) -> list[str]:
        """Lines for a terminal."""
        first, *others = self.summary()
        return [
            f"{self.name}: {first}",
            *(f"  {each}" for each in others),
            f"  {'SELF':>5} {'TOTAL':>6}  {'THREAD':<16} FUNCTION",
            *(
                f"  {own:5.0%} {whole:6.0%}  {thread:<16} {function}"
                for function, thread, own, whole in self.functions()
            ),
        ]
