"""A table of prices that a user gives, and what a run costs by it. Pure but for reading the file.

onDemand: {core: 0.034, accelerator: 2.10}   # an hour, in whatever currency; core: with the memory that comes with it
spot: {core: 0.011, accelerator: 0.75}
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

from pydantic import ValidationError

from rljob.api.document import parse_document
from rljob.api.job import RLJobSpec
from rljob.api.problems import ABSENT, ManifestError, Problem
from rljob.api.structure import structural_problems
from rljob.api.types import APIModel, Real, quantity

Price = Annotated[float, Real(0, 1e9)]
KINDS: Final = ("on_demand", "spot")
_MILLION_OVER_SECONDS_AN_HOUR: Final = 1e6 / 3600


class HourlyPrices(APIModel):
    """What an hour costs."""

    core: Price
    """The price of a core for an hour, with the memory that comes with it."""
    accelerator: Price | None = None
    """The price of an accelerator for an hour; needed where the learner or an inference server asks for one."""


class Prices(APIModel):
    """A table of prices: of machines that stay, and of those that may be taken away."""

    on_demand: HourlyPrices
    """Prices of machines that stay: {core: PRICE}."""
    spot: HourlyPrices
    """Prices of machines that may be taken away: {core: PRICE}."""


def read_prices(path: Path, spec: RLJobSpec) -> Prices:
    """The table in ``path``. Raises ManifestError, with every problem: a kind that is missing, or what ``spec`` needs of one;
    what has no name here; what is no price."""
    try:
        prices = Prices.model_validate(parse_document(path.read_bytes(), str(path)))
    except OSError as error:
        raise ManifestError([Problem(str(path), ABSENT, f"cannot be read: {error.strerror}")]) from None
    except ValidationError as error:
        found = structural_problems(error, Prices)[0]
        raise ManifestError(replace(each, path=f"{path}: {each.path}") for each in found) from None
    if _accelerators(spec) and None in (prices.on_demand.accelerator, prices.spot.accelerator):
        missing = "required: the price of an accelerator for an hour, on demand and spot, as the job asks for one"
        raise ManifestError([Problem(f"{path}: accelerator", ABSENT, missing)])
    return prices


def _accelerators(spec: RLJobSpec) -> int:
    """The accelerators of the learner, and of inference servers of their own."""
    return (spec.learner.accelerator.count or 0) + spec.inference.replicas * (spec.inference.accelerator.count or 0)


def cores_of(spec: RLJobSpec, figures: Mapping[str, float], role: str, members: float) -> float:
    """Cores of one member: what the manifest asks for, else what it was measured to take. ``role``: as figures name it."""
    section = getattr(spec, "actors" if role == "actor" else role, None)
    asked = section.resources.requests.get("cpu") if section is not None else None
    return quantity(asked) if asked else figures.get(f"processes/{role}/cpu_cores", 0.0) / max(1.0, members)


def price_of_an_hour(spec: RLJobSpec, figures: Mapping[str, float], prices: Prices) -> float:
    """What an hour of a run costs, with actors on spot where the manifest says so, and all else on demand."""
    actors = figures.get("actors_running", 0.0)
    shards = spec.replay.shards if spec.replay is not None else 0
    reserved = sum(
        members * cores_of(spec, figures, role, members)
        for role, members in (
            *(("learner", 1), ("replay", shards), ("inference", spec.inference.replicas)),
            ("evaluator", int(spec.evaluator.enabled)),
        )
    )
    playing = (
        actors * cores_of(spec, figures, "actor", actors) * (prices.spot if spec.actors.spot else prices.on_demand).core
    )
    computing = _accelerators(spec) * (prices.on_demand.accelerator or 0.0)
    return reserved * prices.on_demand.core + playing + computing


def per_million_steps(price_of_hour: float, steps_per_second: float) -> float:
    """What a million agent steps cost."""
    return price_of_hour / steps_per_second * _MILLION_OVER_SECONDS_AN_HOUR
