"""One time line of all members that were profiled, as the Chrome trace format has it, which ui.perfetto.dev opens. Pure.

A process for each member, a track for each thread, a slice for each stage, and arrows for the way of a segment of experience:
from the stage in which an actor has sent it, through what took it in, to the update that used it first.
"""

from collections.abc import Iterable
from typing import Any, Final

from rljob_operator.view.profile import ENDED, MemberProfile

CLOCKS: Final = (
    "members on one machine share a clock; machines are aligned by their wall clocks, as well as those agree"
)

_MOST_THREADS: Final = 1000
_ROUNDING_NS: Final = 2
"""What a reader of decimal microseconds may be wrong by. Perfetto drops a slice that reaches into the next one of its track."""


def chrome_trace(profiles: Iterable[MemberProfile]) -> dict[str, Any]:
    """The document. Times are microseconds since the first part of any member.

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


def _named(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}
