"""What the next unit costs and saves, redone by hand; and a table of prices that lacks something."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.api import ManifestError, load_manifest
from rljob.api.types import quantity
from rljob.telemetry.next_unit import crowded, lines, next_units, sentence
from rljob.telemetry.prices import price_of_an_hour, read_prices

from tests.support.paths import EXAMPLES

FIGURES = {
    "steps_per_second": 1000.0,
    "actors_running": 2.0,
    "learner_wait_fraction": 0.5,
    "actors_blocked_fraction": 0.0,
    "processes/learner/cpu_cores": 0.5,
    "processes/replay/cpu_cores": 0.2,
    "processes/actor/cpu_cores": 1.8,
    "stage/replay/idle": 0.9,
    "stage/replay/insert": 0.1,
}
TABLE = "onDemand: {core: 0.04}\nspot: {core: 0.01}\n"
SPEC = load_manifest(
    EXAMPLES / "pong-apex.yaml",
    [
        "spec.evaluator.enabled=false",
        "spec.successPolicy.targetReturn=",
        "spec.successPolicy.rawFrames=1000000",
        "spec.evaluator.triggerReturn=",
    ],
).spec


def table(tmp_path: Path, text: str = TABLE) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    return path


def test_an_actor_more_by_hand(tmp_path: Path) -> None:
    found = next_units(FIGURES, SPEC, seconds_left=300, prices=read_prices(table(tmp_path), SPEC))
    assert found is not None
    actor = next(unit for unit in found.units if "actor" in unit.name)
    assert actor.steps_per_second == pytest.approx(1500, rel=0.01)
    assert actor.seconds_saved == pytest.approx(100, rel=0.02)
    assert found.knee == pytest.approx(4.0, rel=0.01)
    learner, replay, each = (
        quantity(asked) if (asked := getattr(SPEC, role).resources.requests.get("cpu")) else measured
        for role, measured in (("learner", 0.5), ("replay", 0.2), ("actors", 0.9))
    )
    hour = 0.04 * (learner + replay + 2 * each)
    assert found.cost == pytest.approx(hour / 3600 / 1000 * 1e6)
    assert actor.costs is not None
    assert actor.costs["spot"] == pytest.approx((hour + 0.01 * each) / 3600 / actor.steps_per_second * 1e6)
    assert actor.costs["on_demand"] == pytest.approx((hour + 0.04 * each) / 3600 / actor.steps_per_second * 1e6)
    text = "\n".join(lines(found))
    assert "s sooner" in text
    assert " on demand" in text
    assert " spot" in text
    assert "knee of one more actor is at 4.0" in sentence(found)


def test_without_prices_or_a_known_end_nothing_is_said_of_them() -> None:
    found = next_units(FIGURES, SPEC)
    assert found is not None
    assert found.cost is None
    assert all(unit.costs is None and unit.seconds_saved is None for unit in found.units)
    assert "million" not in "\n".join(lines(found))
    assert next_units({}, SPEC) is None


def test_on_a_machine_whose_cores_are_taken_an_actor_needs_one_more() -> None:
    found = next_units(FIGURES, SPEC, cores=2.5)
    assert found is not None
    shares = {unit.name: unit.share for unit in found.units}
    assert shares["an actor on the cores there are"] == pytest.approx(0, abs=0.01)
    assert shares["an actor on a core of its own"] > 0.3


@pytest.mark.parametrize(("waited", "told"), [(0.9, ""), (1.9, "take 1.9 of this machine's 2, ")])
def test_nothing_is_promised_where_other_processes_have_the_cores(waited: float, told: str) -> None:
    mine = {"processes/learner/cpu_cores": 0.02, "processes/replay/cpu_cores": 0.0, "processes/actor/cpu_cores": 0.03}
    figures = {**FIGURES, **mine, "processes/actor/core_wait_cores": waited}
    assert told in crowded(figures, 2.0)
    assert (next_units(figures, SPEC, cores=2.0) is None) == bool(told)
    assert not crowded(figures, None), "each role has a machine of its own"
    assert not crowded({}, 2.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("onDemand: {core: 0.04}\n", "spot: required: Prices of machines that may be taken away"),
        ("spot: {core: 0.04}\n", "onDemand: required: Prices of machines that stay"),
        ("onDemand: {}\nspot: {core: 1}\n", "onDemand.core: required: The price of a core"),
        ("onDemand: {core: -1}\nspot: {core: 1}\n", "onDemand.core: got -1"),
        ("onDemand: {core: cheap}\nspot: {core: 1}\n", "onDemand.core: got 'cheap'"),
        ("onDemand: {core: 1, cpu: 1}\nspot: {core: 1}\n", "onDemand.cpu: got 1; unknown field"),
        ("onDemand: {core: 1}\nspot: {core: 1}\nsspot: {core: 1}\n", "sspot: got"),
        ("onDemand: 0.04\nspot: {core: 1}\n", "onDemand: got 0.04"),
        ("[1]\n", "prices.yaml"),
        ("", "is empty"),
    ],
)
def test_what_a_table_lacks_is_named(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as refused:
        read_prices(table(tmp_path, text), SPEC)
    assert told in str(refused.value)


def test_an_accelerator_needs_a_price_where_the_job_asks_for_one(tmp_path: Path) -> None:
    with_one = load_manifest(EXAMPLES / "pong-apex-gpu.yaml").spec
    if not with_one.learner.accelerator.count:
        pytest.fail("the example is to ask for an accelerator")
    with pytest.raises(ManifestError) as refused:
        read_prices(table(tmp_path), with_one)
    assert "accelerator: required" in str(refused.value)
    text = "onDemand: {core: 0.04, accelerator: 2}\nspot: {core: 0.01, accelerator: 1}\n"
    found = next_units(FIGURES, with_one, prices=read_prices(table(tmp_path, text), with_one))
    assert found is not None
    assert found.cost is not None
    assert found.cost > 2 / 3600 / 1000 * 1e6


def test_inference_servers_of_their_own_are_paid(tmp_path: Path) -> None:
    servers = ["actors.inference=Central", "inference.replicas=2", "inference.resources.requests={cpu: 3}"]
    without, with_two = (
        load_manifest(EXAMPLES / "cartpole-impala.yaml", [f"spec.{one}" for one in s]).spec for s in ([], servers)
    )
    prices = read_prices(table(tmp_path), without)
    more = price_of_an_hour(with_two, FIGURES, prices) - price_of_an_hour(without, FIGURES, prices)
    assert more == pytest.approx(0.04 * 2 * 3)
    on_device = load_manifest(
        EXAMPLES / "cartpole-impala.yaml", [f"spec.{one}" for one in (*servers, "inference.accelerator.count=1")]
    )
    with pytest.raises(ManifestError, match="accelerator: required"):
        read_prices(table(tmp_path), on_device.spec)
