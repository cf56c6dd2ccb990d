"""What the next unit buys: what one more of each thing would add to a run, in steps a second, in time and in money. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rljob.api.job import RLJobSpec
from rljob.telemetry.pipeline import Pipeline, pipeline
from rljob.telemetry.prices import KINDS, Prices, cores_of, per_million_steps, price_of_an_hour

_LEAST_SHARE: Final = 0.5
"""A share of a machine's cores. With less than that, a core more is several times what the run has, and nothing says that it
would get it rather than the others."""


@dataclass(frozen=True, slots=True)
class NextUnit:
    """One thing more.

    ``share``: what it adds to the steps a second, of what there is now. ``seconds_saved``: of those that are left, where that is
    known. ``costs``: of a million steps with it, by kind of price; None where there is no table, or no price of the unit in it.
    """

    name: str
    steps_per_second: float
    share: float
    seconds_saved: float | None = None
    costs: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class NextUnits:
    """All of them; ``steps_per_second`` and ``cost`` of a million steps as it is. ``curve``: (actors, steps a second)."""

    steps_per_second: float
    cost: float | None
    actors: int
    knee: float
    curve: tuple[tuple[int, float], ...]
    units: tuple[NextUnit, ...]


def next_units(
    figures: Mapping[str, float],
    spec: RLJobSpec | None,
    *,
    cores: float | None = None,
    seconds_left: float | None = None,
    prices: Prices | None = None,
) -> NextUnits | None:
    """What one more of each would bring to a run with these flat figures; None before they tell, and where the run is `crowded`.
    ``cores``: of the one machine that all roles share, None where each has its own. Rates are in proportion to what was
    measured."""
    shards = spec.replay.shards if spec is not None and spec.replay is not None else 1
    parts = pipeline(figures, shards=shards, cores=cores)
    if parts is None or crowded(figures, cores):
        return None
    actors, rate = max(1, round(figures["actors_running"])), figures["steps_per_second"]
    scale = rate / parts.steps_per_second(actors, shards)
    hour = price_of_an_hour(spec, figures, prices) if prices is not None and spec is not None else None
    found = []
    for name, further, cores_added in _units(parts, actors, shards, spec, figures):
        costs = None
        if prices is not None and hour is not None and cores_added is not None:
            costs = {
                kind: per_million_steps(hour + cores_added * getattr(prices, kind).core, scale * further)
                for kind in KINDS
            }
        share = scale * further / rate - 1
        saved = None if seconds_left is None else seconds_left * (1 - 1 / (1 + share))
        found.append(NextUnit(name, scale * further, share, saved, costs))
    most = max(2 * actors, round(2 * parts.knee(shards)), 4)
    counts = sorted({*(1 + round(step * (most - 1) / 40) for step in range(41)), actors})
    return NextUnits(
        rate,
        None if hour is None else per_million_steps(hour, rate),
        actors,
        parts.knee(shards),
        tuple((count, scale * _with_cores(parts, count, actors, shards)) for count in counts),
        tuple(found),
    )


def crowded(figures: Mapping[str, float], cores: float | None) -> str:
    """That other processes have most of the cores which the roles would share, in words; empty where they do not."""
    parts = pipeline(figures, cores=cores)
    if cores is None or parts is None or parts.cores is None or parts.cores >= _LEAST_SHARE * cores:
        return ""
    return (
        f"the run waits for cores: other processes than its actors, learner and replay take {cores - parts.cores:.1f} of this "
        f"machine's {cores:g}, and until they do not it can't be told what one more of anything would add"
    )


def _with_cores(parts: Pipeline, count: int, actors: int, shards: int) -> float:
    """With so many actors, each further one on a core of its own."""
    return parts.steps_per_second(count, shards, further_cores=max(0, count - actors))


def _units(
    parts: Pipeline, actors: int, shards: int, spec: RLJobSpec | None, figures: Mapping[str, float]
) -> Iterator[tuple[str, float, float | None]]:
    """(name, steps a second with it, cores that it costs; None where it has no price)."""
    own = cores_of(spec, figures, "actor", actors) if spec is not None else 0.0
    yield "an actor on a core of its own", _with_cores(parts, actors + 1, actors, shards), own
    if parts.cores is not None:
        yield "an actor on the cores there are", parts.steps_per_second(actors + 1, shards), 0.0
        yield "a core more for what runs", parts.steps_per_second(actors, shards, further_cores=1), 1.0
    if parts.shard_seconds(1) and spec is not None:
        shard = cores_of(spec, figures, "replay", shards)
        yield "a replay shard", parts.steps_per_second(actors, shards + 1, further_cores=shard), shard
    if parts.cores is None:
        yield "a network twice as fast", parts.steps_per_second(actors, shards, ways=2), None
    yield "a learner twice as fast", parts.steps_per_second(actors, shards, learners=2), None


def sentence(found: NextUnits) -> str:
    """The best of them in a sentence, for a status."""
    best = max(found.units, key=lambda unit: unit.share)
    return (
        f"{best.name} would add {100 * best.share:.0f} % to {found.steps_per_second:,.0f} steps/s; "
        f"the knee of one more actor is at {found.knee:.1f} of them, {found.actors} play"
    )


def lines(found: NextUnits) -> Iterator[str]:
    """All of them as a table in plain text."""
    now = "" if found.cost is None else f", {found.cost:.3g} a million steps; behind each, what those would cost"
    yield f"What the next unit would bring to {found.steps_per_second:,.0f} steps/s{now}:"
    for unit in found.units:
        saved = "" if unit.seconds_saved is None else f"  {unit.seconds_saved:,.0f} s sooner"
        costs = "".join(f"  {cost:.3g} {kind.replace('_', ' ')}" for kind, cost in (unit.costs or {}).items())
        yield f"  {unit.name:<32} {unit.steps_per_second:>9,.0f} steps/s  {100 * unit.share:>+6.1f} %{saved}{costs}"
    yield f"The knee of one more actor is at {found.knee:.1f} actors; {found.actors} play now."
