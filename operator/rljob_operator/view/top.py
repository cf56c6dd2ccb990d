"""The screen of `rljob top`: one run as its controller and its learner see it now. Pure: from what was seen to something to
print."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rljob.api.conditions import Reason
from rljob.api.learner_status import ActorStatus

from rljob_operator.view.job_view import JobView, lag, updates
from rljob_operator.view.reasons import is_odd
from rljob_operator.view.run_figures import blocked_fraction, evaluation, gpu, reported, stage_seconds, stored
from rljob_operator.view.words import age, bytes_of, duration, milliseconds, number, percent

_UNWELL = "bold red"
_SHOWN_CONDITIONS = ("Accepted", "Progressing", "ScalingLimited", "CheckpointValid", "FailureTarget", "Failed")


def screen(run: JobView, before: JobView | None = None) -> RenderableType:
    """The whole screen. With the look ``before``, an actor's share of blocked time is that since then, else that of its life."""
    status = run.status
    at_work = age(run.active_seconds(time.time())) if status.start_time is not None else ""
    title = f"{run.name}  {run.state}  {at_work}".rstrip()
    parts: list[RenderableType] = [_figures(run)]
    if status.inference.desired or run.servers:
        parts.append(_servers(run, before))
    parts.append(_actors(run.figures.actors, before.figures.actors if before is not None else ()))
    if taken := _taken(run):
        parts.append(_processes(taken))
    if status.autoscaling.last_decision:
        parts.append(Text(f"last decision: {status.autoscaling.last_decision}"))
    parts += [Text(f"! {text}", style=_UNWELL) for text in unwell(run)]
    return Panel(Group(*parts), title=title, title_align="left", border_style="cyan")


def unwell(run: JobView) -> list[str]:
    """What is not as it should be, a line each."""
    found = []
    if not run.attended and run.running:
        found.append(f"no controller; these are ending: {', '.join(run.running)}")
    odd = (
        each
        for each in run.status.conditions
        if each.type in _SHOWN_CONDITIONS and each.reason != Reason.MISSING and is_odd(each)
    )
    found += [f"{each.type} {each.status}, {each.reason}: {each.message}".rstrip(": ") for each in odd]
    if run.problem:
        found.append(run.problem)
    return found


def _figures(run: JobView) -> RenderableType:
    figures, status = run.figures, run.status
    depth, bound = figures.queue_depth_batches, figures.queue_bound_batches
    share = depth / bound if depth is not None and bound else None
    if bound is None and run.queue_fill_percent is not None:
        share = run.queue_fill_percent / 100
    desired = status.autoscaling.desired_replicas or status.actors.replicas
    progress = status.progress
    cells = {
        "queue depth": f"{number(depth, '{:,.0f}')} of {number(bound, '{:,.0f}')} batches ({percent(share)})",
        "starved": percent(figures.learner_wait_fraction),
        "blocked": percent(figures.actors_blocked_fraction),
        "lag": f"{lag(figures)} updates",
        "steps/s": number(figures.steps_per_second, "{:,.0f}"),
        "updates/s": number(figures.updates_per_second, "{:,.1f}"),
        "return": number(figures.mean_return, "{:.2f}"),
        "evaluation": evaluation(figures),
        **reported(figures),
        **stored(figures),
        "updates": updates(run),
        "actors": f"{status.actors.ready} ready of {desired}"
        + (f", {status.actors.draining} draining" if status.actors.draining else ""),
        **_inference(run),
        **gpu(figures),
        "progress": "-" if progress.percent is None else f"{progress.percent} %",
        "to go": duration(progress.estimated_seconds_remaining),
        "checkpoint": _checkpoint(run),
    }
    table = Table.grid(padding=(0, 3))
    entries = [Text.assemble((f"{label} ", "bright_black"), (value, "bold")) for label, value in cells.items()]
    for start in range(0, len(entries), 4):
        table.add_row(*entries[start : start + 4])
    return table


def _inference(run: JobView) -> dict[str, str]:
    servers = run.status.inference
    return {"inference": f"{servers.ready} ready of {servers.desired}"} if servers.desired else {}


def _checkpoint(run: JobView) -> str:
    found = run.checkpoint
    if found is None or found.time is None:
        return "none yet"
    return f"update {found.step:,}, {age(time.time() - found.time)} old"


def _servers(run: JobView, before: JobView | None) -> RenderableType:
    """Inference servers of their own; rates are those since the look ``before``."""
    table = Table(box=None, padding=(0, 1), header_style="bright_black")
    for heading in ("INFERENCE", "STATE", "ANSWERS/S", "BATCH", "P50", "P99", "WEIGHTS"):
        table.add_column(heading, justify="left" if heading in ("INFERENCE", "STATE") else "right", no_wrap=True)
    for name in sorted({f"inference-{k}" for k in range(run.status.inference.desired)} | set(run.servers)):
        server = run.servers.get(name, {})
        table.add_row(
            name,
            str(server.get("state", "no answer" if name in run.running else "not running")),
            number(_rate(server, before.servers.get(name, {}) if before is not None else {}), "{:,.0f}"),
            number(server.get("batch_mean"), "{:.1f}"),
            *(milliseconds(server.get(f"latency_{each}_seconds")) for each in ("p50", "p99")),
            number(server.get("policy_version"), "{:,}"),
        )
    return table


def _taken(run: JobView) -> dict[str, Any]:
    """What the processes of each role take, as the learner knows it, and each inference server as it says itself."""
    servers = {name: server.get("process") for name, server in sorted(run.servers.items())}
    return {name: taken for name, taken in {**run.figures.processes, **servers}.items() if isinstance(taken, Mapping)}


def _processes(taken: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    table = Table(box=None, padding=(0, 2), header_style="bright_black")
    for heading in ("PROCESSES", "CPU", "MEMORY", "SHARED", "FILES", "UNREAD", "UNSENT"):
        table.add_column(heading, justify="left" if heading == "PROCESSES" else "right")
    for name, figures in taken.items():
        sizes = (bytes_of(figures.get(f"{each}_bytes")) for each in ("rss", "shm", "receive_queue", "send_queue"))
        memory, shared, unread, unsent = sizes
        cores, files = number(figures.get("cpu_cores"), "{:.2f}"), number(figures.get("open_files"), "{:,.0f}")
        table.add_row(name, cores, memory, shared, files, unread, unsent)
    return table


def _rate(now: Mapping[str, Any], before: Mapping[str, Any]) -> float | None:
    """Answers a second between two statuses: a server's stages add up to the time that passed for it."""
    spent = stage_seconds(now) - stage_seconds(before)
    after, earlier = now.get("requests_total"), before.get("requests_total", 0)
    if not (isinstance(after, int | float) and isinstance(earlier, int | float)):
        return None
    return (after - earlier) / spent if spent > 0 and after >= earlier else None


def _actors(actors: Sequence[ActorStatus], before: Sequence[ActorStatus]) -> RenderableType:
    table = Table(box=None, padding=(0, 2), header_style="bright_black")
    for heading in ("ACTOR", "STATE", "STEPS/S", "BLOCKED", "WEIGHTS", "SLOT", "HEARD"):
        table.add_column(heading, justify="left" if heading in ("ACTOR", "STATE") else "right")
    earlier = {actor.name: actor for actor in before}
    for actor in actors:
        table.add_row(
            actor.name,
            actor.state or "-",
            number(actor.steps_per_second, "{:,.0f}"),
            percent(blocked_fraction(actor, earlier.get(actor.name))),
            number(actor.policy_version, "{:,}"),
            number(actor.slot, "{}"),
            number(actor.age_seconds, "{:.0f}s ago"),
        )
    return table
