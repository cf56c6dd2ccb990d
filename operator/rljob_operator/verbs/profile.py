"""``rljob profile``: what the processes of a job that runs do with their time, function by function and stage by stage."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rljob.api.exit_codes import EXIT_FAILURE
from rljob.api.status_document import json_document
from rljob.command_errors import one_line_errors
from rljob.errors import CommandRefused, UsageError
from rljob.strict_json import dumps

from rljob_operator.core.context import some
from rljob_operator.polls.reach import NoAnswer, Reach
from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    MembersArgument,
    NamespaceOption,
    jobs_of,
)

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


CLOCKS: Final = (
    "members on one machine share a clock; machines are aligned by their wall clocks, as well as those agree"
)

_MOST_THREADS: Final = 1000
_ROUNDING_NS: Final = 2
"""What a reader of decimal microseconds may be wrong by. Perfetto drops a slice that reaches into the next one of its track."""


def chrome_trace(profiles: Iterable[MemberProfile]) -> dict[str, Any]:
    """The document. Times are microseconds since the first part of any member. Each thread that computes has a second track, of
    the functions that its samples saw.

    The kernel's clock that members tell by is the same wherever the boot is the same; what makes Unix time of it is taken
    from one member of each boot, so that clocks which are set meanwhile do not move members of one machine apart.
    """
    offsets: dict[str, int] = {}
    found = [
        (each, offsets.setdefault(each.boot or each.name, each.parts[0]["offset_ns"]))
        for each in profiles
        if each.parts
    ]
    zero = min((int(each.parts[0]["began_ns"]) + offset for each, offset in found), default=0)
    events: list[dict[str, Any]] = []
    ways: dict[str, list[dict[str, Any]]] = {}
    for number, (profile, offset) in enumerate(found, start=1):
        process, shift, first, last = number * _MOST_THREADS, offset - zero, profile.parts[0], profile.parts[-1]
        names = {int(thread): about[0] for part in profile.parts for thread, about in part["threads"].items()}
        main = next((thread for thread, name in names.items() if name == "MainThread"), 0)
        tracks = {main: process}  # no two threads of all members have the same number
        spans = [tuple(span) for part in profile.parts for span in part["spans"]]
        # A stage that has not ended is in no span; only a loop of the main thread has stages that last so long.
        spans += [(main, stage, since, last["ended_ns"]) for stage, since in last["running"]]
        busy = {thread: name for thread, name in names.items() if name in profile.busy}
        for part in profile.parts:
            spans += [(-thread, *each) for thread in busy for each in _sampled(part, thread)]
        names |= {-thread: f"{name}, functions as sampled" for thread, name in busy.items()}
        for thread, name, began, ended in sorted(spans, key=lambda span: (span[2], -span[3])):
            at = {"pid": process, "tid": tracks.setdefault(thread, process + len(tracks))}
            began, ended = max(began, first["began_ns"]), ended - _ROUNDING_NS
            if ended > began:
                events.append(
                    {
                        "ph": "X",
                        "name": name,
                        "cat": "stage",
                        **at,
                        "ts": (began + shift) / 1000,
                        "dur": (ended - began) / 1000,
                    }
                )
        for thread, step, origin, time_ns in (flow for part in profile.parts for flow in part["flows"]):
            at = {"pid": process, "tid": tracks.setdefault(thread, process + len(tracks))}
            arrow = {
                "ph": step,
                "name": "segment",
                "cat": "experience",
                **at,
                "ts": (time_ns + shift) / 1000,
                "bp": "e",
            }
            ways.setdefault(origin, []).append(arrow)
        events.append(_named("process_name", process, process, profile.name))
        events += [_named("thread_name", process, track, names.get(thread, ENDED)) for thread, track in tracks.items()]
    in_order = [sorted(way, key=lambda event: float(event["ts"])) for way in ways.values()]
    for identifier, way in enumerate([way for way in in_order if way[0]["ph"] == "s" and len(way) > 1], start=1):
        events += [{**event, "id": identifier} for event in way]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"clocks": CLOCKS}}


def _sampled(part: Mapping[str, Any], thread: int) -> list[tuple[str, int, int]]:
    """The functions in a thread's samples of one part, as (function, begin, end), callers before what they call. Each stands for
    its share of the part: side by side, in no order in time, as wide as it was seen often."""
    began, each = part["began_ns"], (part["ended_ns"] - part["began_ns"]) / max(1, part["samples"])
    stacks = sorted((positions, count) for of, positions, count in part["stacks"] if int(of) == thread)
    slices: list[tuple[str, int, int]] = []
    under_way: list[tuple[int, int]] = []
    at = 0
    for positions, count in [*stacks, ([], 0)]:
        known = [function for function, _ in under_way]
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, positions, strict=False)))
        while len(under_way) > common:
            function, first = under_way.pop()
            slices.append((part["frames"][function], int(began + first * each), int(began + at * each)))
        under_way += [(function, at) for function in positions[common:]]
        at += count
    return slices[::-1]


def _named(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


_AGAIN_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 5.0
"""A member without an answer for so long has ended, or its machine can't be reached."""


def profile(
    job: JobArgument = None,
    who: MembersArgument = None,
    seconds: Annotated[int, typer.Option(min=1, max=600, help="How long.")] = 10,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A new folder.", show_default="RUN/profiles/TIME; of a cluster NS/JOB/profiles/TIME"
        ),
    ] = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Profile the processes of a running job: which functions take their time, and who waits for whom.

    Prints the most expensive functions and writes a time line of all roles for ui.perfetto.dev (timeline.json): their stages,
    the path of experience, and the functions of each thread. Ctrl-C ends it early and keeps the samples.

    On a cluster this uses the API server and needs the right to get pods/proxy.

    Examples:

      rljob profile

      rljob profile learner --seconds 30

      rljob profile -n team-a pong actor-0
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        if job is not None and who is None and jobs.splits(job):
            job, who = None, job
        chosen = jobs.chosen(job)
        folder = output or Path(chosen.place) / "profiles" / time.strftime("%Y%m%d-%H%M%S")
        found: dict[str, MemberProfile] = {}

        async def work(reach: Reach, urls: Mapping[str, str]) -> None:
            names = sorted(urls, key=lambda name: (not name.startswith("learner"), len(name), name))
            meant = {name: urls[name] for name in names if who in (None, name, name.partition("-")[0])}
            if not meant:
                there = f"there are: {some(names, 20)}" if urls else "nothing runs"
                raise UsageError(f"{chosen.place}: no {who or 'process'} to profile; {there}")
            folder.mkdir(parents=True)
            typer.echo(f"{chosen.place}: profiling {some(meant, 8)} for {seconds} s", err=True)
            found.update({name: MemberProfile(name) for name in meant})
            await asyncio.gather(*(_sample(reach, url, found[name], seconds) for name, url in meant.items()))

        try:
            chosen.ask(work)
        except KeyboardInterrupt:
            if not found:  # there is no folder yet
                raise
            typer.echo("ended early", err=True)
        sampled = [each for each in found.values() if each.parts]
        if not sampled:
            folder.rmdir()
            reasons = "; ".join(f"{each.name}: {each.problem or 'ended early'}" for each in found.values())
            raise CommandRefused(f"{chosen.place}: nothing was sampled: {reasons}", EXIT_FAILURE)
        (folder / "timeline.json").write_text(dumps(chrome_trace(sampled)))
        for each in found.values():
            typer.echo("\n".join([*each.table(), ""]))
        typer.echo(f"{folder}: timeline.json, which ui.perfetto.dev opens")


async def _sample(reach: Reach, url: str, profile: MemberProfile, seconds: int) -> None:
    """Read what a member samples, until it is enough or the member is gone. What had come until then stays."""
    read_page, heard = "profile", time.monotonic()
    while profile.seconds < seconds and not profile.problem:
        try:
            answer = json_document(await reach.read(url, read_page))
            for part in answer["parts"]:
                profile.add(part)
            profile.boot, read_page, heard = str(answer["boot"]), f"profile/{int(answer['next'])}", time.monotonic()
        except (NoAnswer, KeyError, ValueError, TypeError, IndexError) as problem:
            if time.monotonic() - heard > _PATIENCE_SECONDS:
                profile.problem = f"it has ended or no longer answers: {problem}"
        await asyncio.sleep(_AGAIN_SECONDS)
