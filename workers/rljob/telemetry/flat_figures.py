"""From a learner's status document to the flat, named numbers that TensorBoard and ``metrics.jsonl`` hold, and what
they come to over a whole run.

The names are the contract between a run folder and everything that reads it (the report, a notebook, the live view):
a top-level number keeps its name, a number of the replay becomes ``replay/<name>``, one of the queue of unrolls
``queue/<name>``, one of an inference server in the learner ``inference/<name>``, one of the learner's GPU ``gpu/<name>``, what
the environment reports of its episodes ``episode/<name>``, what the processes of a role take ``processes/<role>/<name>``, the
share of a stage ``stage/<role>/<stage>``, where that GPU stands as a role of its own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

GONE_STATES = frozenset({"gone", "lost", "left", "dead", "stopped", "expired", "draining", "failed", "connecting"})
"""Actor states (lower case) in which no experience is being made."""

SILENT_SECONDS = 15.0
"""An actor that has not been heard of for so long does not count as running."""

_NOT_FIGURES = frozenset({"epoch", "started_unix", "raw_frames_total"})
"""Top-level numbers that say which run this is, or that every record carries anyway."""

Stages = Mapping[str, Mapping[str, float]]


def number(value: object) -> float | None:
    """``value`` as a finite float, or None if it is no such thing. True and False are 1.0 and 0.0."""
    if not isinstance(value, bool | int | float):
        return None
    try:
        finite = float(value)
    except OverflowError:  # an integer beyond 1.8e308
        return None
    return finite if math.isfinite(finite) else None


def numbers_in(values: object, prefix: str = "") -> dict[str, float]:
    """The finite numbers of a mapping by ``prefix`` and name; none where it is no mapping."""
    named = values.items() if isinstance(values, Mapping) else ()
    return {f"{prefix}{name}": finite for name, value in named if (finite := number(value)) is not None}


def flatten_status(status: Mapping[str, Any], previous_stages: Stages | None = None) -> dict[str, float]:
    """The finite numbers of a learner's status, flat.

    Args:
        status: the learner's status document. Unknown or missing parts are left out, never an error.
        previous_stages: ``status["stages"]`` of the record before; the shares of stages are then of the time since.
    """
    figures = {name: value for name, value in numbers_in(status).items() if name not in _NOT_FIGURES}
    for part in ("replay", "queue", "inference", "gpu", "episode"):
        document = status.get(part)
        figures |= numbers_in(document, f"{part}/")
        if isinstance(document, Mapping):
            figures |= numbers_in(document.get("dropped"), f"{part}/dropped/")
    processes = status.get("processes")
    for role, taken in processes.items() if isinstance(processes, Mapping) else ():
        figures |= numbers_in(taken, f"processes/{role}/")
        figures.pop(f"processes/{role}/cpu_seconds", None)  # the cores say it
    actors = status.get("actors")
    if isinstance(actors, list | tuple):
        figures["actors_running"] = float(sum(1 for actor in actors if is_running(actor)))
    stages = status.get("stages")
    if isinstance(stages, Mapping):
        for role, shares in stage_fractions(stages, previous_stages).items():
            figures |= {f"stage/{role}/{stage}": share for stage, share in shares.items()}
    return figures


def is_running(actor: object) -> bool:
    """Whether an entry of the status document's ``actors`` is at work."""
    return (
        isinstance(actor, Mapping)
        and str(actor.get("state", "")).lower() not in GONE_STATES
        and (number(actor.get("age_seconds")) or 0.0) <= SILENT_SECONDS
    )


def stage_fractions(stages: Stages, previous: Stages | None = None) -> dict[str, dict[str, float]]:
    """Each role's stages as shares (0..1) of the time between two readings of its clock.

    Args:
        stages: total seconds a role and stage, now.
        previous: the same earlier; None, or a role whose clock went backwards because it was restarted, means since 0.

    Returns:
        The same keys with shares that sum to 1 a role; a role in which no time passed is left out.
    """
    shares: dict[str, dict[str, float]] = {}
    for role, seconds in stages.items():
        if not isinstance(seconds, Mapping):
            continue
        now = {stage: number(value) or 0.0 for stage, value in seconds.items()}
        before = (previous or {}).get(role) or {}
        spent = {stage: value - (number(before.get(stage)) or 0.0) for stage, value in now.items()}
        if any(value < 0 for value in spent.values()):
            spent = now
        whole = sum(spent.values())
        if whole > 0:
            shares[role] = {stage: value / whole for stage, value in spent.items()}
    return shares


Points = Sequence[Mapping[str, Any]]

GAMES_TO_GO_BY: Final = 10
"""The first games to end after a start are the shortest ones: a mean of fewer says little about the score."""


def with_returns_to_go_by(points: Points) -> Points:
    """The records, without those training returns and lengths that are of too few games; as they are where none has
    enough."""

    def enough(point: Mapping[str, Any]) -> bool:
        games = number(point.get("games"))
        return number(point.get("mean_return")) is not None and (games is None or games >= GAMES_TO_GO_BY)

    if not any(map(enough, points)):
        return points
    too_few = {"mean_return": None, "mean_length_steps": None}
    return [point if enough(point) else {**point, **too_few} for point in points]


def mean_figures(points: Points, since_seconds: float = 0.0) -> dict[str, float]:
    """The mean of each figure over the records that have it, each weighted with the time since the record before, the first with
    that since ``since_seconds`` of the run."""
    totals: dict[str, tuple[float, float]] = {}
    before = since_seconds
    for point in points:
        elapsed = number(point.get("elapsed_seconds")) or 0.0
        weight, before = max(elapsed - before, 1e-3), elapsed
        for name, value in numbers_in(point).items():
            whole, weights = totals.get(name, (0.0, 0.0))
            totals[name] = whole + weight * value, weights + weight
    return {name: whole / weights for name, (whole, weights) in totals.items()}


def mean_stages(points: Points) -> dict[str, dict[str, float]]:
    """``{role: {stage: share}}`` over the run, from the learner outwards."""
    shares: dict[str, dict[str, float]] = {}
    for name, share in mean_figures(points).items():
        prefix, _, rest = name.partition("/")
        role, _, stage = rest.partition("/")
        if prefix == "stage" and stage:
            shares.setdefault(role, {})[stage] = share
    order = {"learner": 0, "gpu": 1, "replay": 2, "actor": 3}
    return dict(sorted(shares.items(), key=lambda item: (order.get(item[0], 9), item[0])))
