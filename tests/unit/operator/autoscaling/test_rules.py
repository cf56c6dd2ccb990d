"""Every rule of the autoscaler alone, on a job whose learner digests 40 items a second and whose actors make one each."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from rljob.api.controller_memory import MemberMemory
from rljob.api.roles import AutoscalingSpec
from rljob_operator.core.autoscaling.advance import Recommendation, advance
from rljob_operator.core.autoscaling.guards import most_allowed
from rljob_operator.core.autoscaling.law import Match, Rates
from rljob_operator.core.autoscaling.limits import least_after, most_after, most_wanted, with_wanted
from rljob_operator.core.autoscaling.model import (
    MOST_ENTRIES,
    AutoscalingMemory,
    GuardMemory,
    LimitedBy,
    ScalingSample,
    Supply,
)
from rljob_operator.core.autoscaling.warmup import fault
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules.places import _stays

T0 = 1_700_000_000.0
SPEC = AutoscalingSpec(mode="Internal", min_replicas=2, max_replicas=200)


def figures(now: float, actors: int, capacity: float = 40.0, rate: float = 1.0) -> ScalingSample:
    offered = actors * rate
    done = min(offered, capacity)
    return ScalingSample(
        now, 1 - done / capacity, 1 - done / offered, done, done, 64.0 if offered > capacity else 0.0, 64.0, 1.0
    )


def supply(actors: int, requested: int = 4, **other: float) -> Supply:
    fields = {"pending": 0, "draining": 0, "unschedulable_seconds": 0.0, "learner_started_seconds": T0, **other}
    return Supply(ready=actors, requested_replicas=requested, **fields)  # type: ignore[arg-type]


class Job:
    """Actors that are there at once, and a learner; `run` changes its fields, lets it be, and answers the last recommendation."""

    def __init__(self, spec: AutoscalingSpec = SPEC, actors: int = 4, capacity: float = 40.0) -> None:
        self.spec, self.actors, self.capacity, self.now = spec, actors, capacity, T0
        self.requested, self.memory, self.rate = actors, AutoscalingMemory(), 1.0
        self.seen, self.age = True, 0.0
        self.lag: float | None = None
        self.unschedulable = 0.0
        self.answers: list[Recommendation] = []

    def figures(self) -> ScalingSample:
        return figures(self.now - self.age, max(1, self.actors), self.capacity, self.rate)

    def run(self, seconds: int, **changes: object) -> Recommendation:
        vars(self).update(changes)
        for _ in range(seconds):
            sample = replace(self.figures(), policy_lag_updates_p95=self.lag) if self.seen else None
            there = supply(self.actors, self.requested, unschedulable_seconds=self.unschedulable)
            answer = advance(self.spec, self.memory, sample, there, self.now)
            self.memory, self.actors, self.now = answer.memory, answer.desired, self.now + 1
            self.answers.append(answer)
        return self.answers[-1]


def changed(spec: AutoscalingSpec, **fields: object) -> AutoscalingSpec:
    return spec.model_copy(update=fields)


def test_matches_the_rates_after_one_rate_window_and_no_sooner() -> None:
    job = Job()
    assert (job.run(60).desired, job.answers[-1].memory.active) == (4, "WarmingUp")
    answer = job.run(1)
    assert (answer.desired, answer.limited_by) == (8, LimitedBy.SCALE_UP_POLICY), "doubles at most"
    assert (job.run(120).desired, job.answers[-1].memory.active) == (40, "ValidMetricFound")


def test_a_saturated_learner_shrinks_the_fleet_after_the_window_and_by_a_fifth_at_most() -> None:
    job = Job(actors=100)
    assert job.run(179).desired == 100
    numbers = [100, *(job.run(1).desired for _ in range(300))]
    assert (min(numbers) >= 40, numbers[-1] in (40, 41)) == (True, True)
    assert all(after >= int(before * 0.8) for before, after in pairwise(numbers))


def test_a_person_recomputes_the_decision_from_its_sentence() -> None:
    said = Job().run(61).last_decision
    found = re.search(
        r": ([\d.]+) / ([\d.]+) x \(1 ([-+][\d.]+)\) ([-+][\d.]+) = ([\d.]+) wanted, at least ([\d.]+) \(- ([\d.]+)%\)"
        r", tolerance ([\d.]+): aim at (\d+) within bounds 2 to 200, window (\d+), steps (\d+) to (\d+): "
        r"(\d+) -> (\d+) actors",
        said,
    )
    assert found, said
    capacity, rate, integral, trim, wanted, least, percent, tolerance = map(float, found.groups()[:8])
    assert capacity / rate * (1 + integral) + trim == pytest.approx(wanted, rel=1e-5)
    assert wanted * (1 - percent / 100) == pytest.approx(least, rel=1e-4)
    aim, window, fewest, most, before, after = map(int, found.groups()[8:])
    assert wanted - before > tolerance
    assert aim == math.floor(least + 0.65) == window
    assert (fewest, before, after) == (3, 4, min(aim, most))
    assert said.endswith("limited by the most that one decision adds: as many again, or 4")


def test_a_look_without_figures_is_no_decision() -> None:
    job = Job()
    job.run(60)
    assert job.run(5, seen=False).desired == 4
    assert job.run(1, seen=True).desired == 8, "at the next look, not after a whole period"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("wait_fraction", math.nan),
        ("wait_fraction", 1.01),
        ("blocked_fraction", -0.01),
        ("consumption_per_second", -1.0),
        ("production_per_second", math.inf),
        ("depth_batches", -1.0),
        ("bound_batches", 0.0),
        ("policy_lag_updates_p95", math.nan),
        ("taken_seconds", T0 - 46),
        ("taken_seconds", T0 + 5),
        ("taken_seconds", math.nan),
    ],
)
def test_a_figure_out_of_range_is_missing(field: str, value: float) -> None:
    good = figures(T0, 40)
    assert fault(good, T0) == ""
    assert fault(replace(good, **{field: value}), T0) != ""


@pytest.mark.parametrize(("guard", "most"), [({}, 40), ({"max_policy_lag_updates": 400}, 36)])
def test_a_guard_that_was_left_out_follows_the_learners_limit(guard: dict[str, int], most: int) -> None:
    late = replace(figures(T0, 40), policy_lag_updates_p95=401.0, lag_limit_updates=600.0)
    spec, memory = changed(SPEC, guards=SPEC.guards.model_copy(update=guard)), AutoscalingMemory()
    for now in range(62):
        answer = advance(spec, memory, replace(late, taken_seconds=T0 + now), supply(40, 40), T0 + now)
        memory = answer.memory
    assert answer.desired == most


# --- no actor plays -------------------------------------------------------------------------------------------------


def idle(now: float) -> ScalingSample:
    """What a learner reports to which no actor sends anything: it waits all the time and makes no update."""
    return ScalingSample(now, 1.0, 0.0, 0.0, 0.0, 0.0, 64.0, 1.0, learner_advancing=False)


class Lone(Job):
    """A job whose figures come to rest when its last actor has gone, as a real learner's do."""

    def figures(self) -> ScalingSample:
        return super().figures() if self.actors else idle(self.now)


FROM_ZERO, EXTERNAL = changed(SPEC, min_replicas=0), changed(SPEC, mode="External")


def test_the_lag_guard_leaves_the_actor_that_shows_whether_the_lag_has_fallen() -> None:
    job = Lone(FROM_ZERO, actors=3, capacity=3.0)
    assert (job.run(600, lag=401.0).limited_by, job.actors) == (LimitedBy.POLICY_LAG, 1)
    assert job.run(600, lag=0.0).desired == 3, "the lag has fallen, and the law goes on"
    asked = Lone(changed(FROM_ZERO, mode="External"), actors=1)
    assert asked.run(600, lag=401.0).recommended == 1, "who follows it stays able to see"


def test_a_number_of_0_is_left_again() -> None:
    """A user's 0 is a jump like any other, after which the law goes on; at 0 it would see nothing for ever."""
    job = Lone(FROM_ZERO, actors=4)
    job.run(305)
    assert job.run(1, requested=0).desired == 0, "as asked for"
    first = next(answer for _ in range(60) if (answer := job.run(1)).desired)
    assert (first.desired, first.limited_by) == (1, LimitedBy.NOTHING)
    assert [words for words in ("no actor plays", "0 -> 1 actors") if words not in first.last_decision] == []
    assert job.run(600).desired == 40
    assert Lone(FROM_ZERO, actors=0).run(600).desired == 40, "nor is a job stuck that begins with 0"


GUARDED = {"unschedulable": 61}


@pytest.mark.parametrize(
    ("job", "seconds", "world", "desired", "recommended", "limit"),
    [
        *(
            (Job(changed(SPEC, pause=pause), actors=40, capacity=capacity), 500, {}, number, None, None)
            for pause, capacity, number in (
                ("All", 80.0, 40), ("All", 20.0, 40), ("ScaleOut", 80.0, 40), ("ScaleOut", 20.0, 20), ("ScaleIn", 20.0, 40),
                ("ScaleIn", 80.0, 80),
            )
        ),
        (Job(), 120, GUARDED, 4, None, "Unschedulable"),
        (Job(actors=40), 62, {"lag": 401.0}, 36, None, "PolicyLag"),
        # A guard and a pause hold a recommendation, too.
        (Job(EXTERNAL), 120, GUARDED, 4, 4, None),
        (Job(changed(EXTERNAL, pause="ScaleOut")), 120, {}, 4, 4, None),
        # 0 stays where the number may not grow, and where it is somebody else's, who gets out of it by the recommended one.
        *((Lone(changed(FROM_ZERO, **stays), actors=0), 600, {}, 0, None, None)
          for stays in ({"pause": "ScaleOut"}, {"pause": "All"}, {"max_replicas": 0})),
        (Lone(changed(FROM_ZERO, mode="External"), actors=0), 600, {}, 0, 1, None),
    ],
)  # fmt: skip
def test_what_holds_the_number(
    job: Job, seconds: int, world: dict[str, float], desired: int, recommended: int | None, limit: str | None
) -> None:
    answer = job.run(seconds, **world)
    assert (answer.desired, answer.recommended if job.spec.mode == "External" else None) == (desired, recommended)
    assert limit in (None, answer.limited_by.reason)
    assert limit != "Unschedulable" or job.memory.integral == 0.0, "nothing winds up"


def test_growth_that_brings_nothing_stops() -> None:
    job = Job(capacity=100.0, actors=10)
    for _ in range(600):
        job.run(1, rate=10.0 / job.actors)  # they share one machine
    limit = job.answers[-1].limited_by
    assert (limit, limit.reason, job.actors) == (LimitedBy.GAIN, "DiminishingReturns", 10), "it is taken back"
    assert job.run(100).desired == 10


def test_actors_that_became_slower_by_a_growth_are_no_reason_for_more() -> None:
    guards = GuardMemory(actors=4, free_actors=8.0, arrived_per_second=16.0)  # two a second each before
    twenty = Match(Rates(20.0, 1.0, 0.0, True), integral=0.0, missing_items=0.0, trim_seconds=1.0)
    assert most_allowed(guards, twenty, supply(5), 5, T0) == (10, LimitedBy.GAIN)


def test_what_was_learned_of_the_lag_is_kept_for_twice_as_long_each_time() -> None:
    """The lag is too high from 37 actors on, and 40 are wanted."""
    job, changes = Job(actors=36), []
    for _ in range(4000):
        job.lag = 500.0 if job.actors > 36 else 300.0
        before = job.actors
        if job.run(1).desired != before:
            changes.append((job.now - T0, job.actors))
    times, numbers = zip(*changes, strict=True)
    assert numbers == (40, 36) * 3
    assert (times[2] - times[1], times[4] - times[3]) == pytest.approx((600, 1200), abs=15)
    assert job.run(3000, lag=350.0).desired == 36  # between the thresholds


def test_a_user_jumps_once_and_the_law_goes_on() -> None:
    job = Job(actors=40)
    job.run(300)
    assert job.run(1, requested=80).desired == 80, "at once, past the pace"
    assert job.run(170).desired == 80, "for one window"
    assert job.run(300).desired == 40


def test_external_obeys_within_the_bounds_and_recommends() -> None:
    job = Job(EXTERNAL)
    assert job.run(60).recommended is None, "warming up"
    answer = job.run(60)
    assert (answer.desired, answer.limited_by) == (4, LimitedBy.NOTHING)
    assert (answer.recommended, answer.memory.active) == (pytest.approx(40, abs=1), "ValidMetricFound")
    assert answer.last_decision.startswith("4 actors as asked for; learner 40/s")
    assert answer.last_decision.endswith("40 recommended beside 4")
    answer = job.run(1, requested=500)
    assert (answer.desired, answer.limited_by) == (200, LimitedBy.MAX_REPLICAS), "between decisions too"
    assert answer.last_decision.startswith("200 actors of 500 asked for, limited by maxReplicas, the machine")
    assert (job.run(1, requested=1).desired, job.answers[-1].limited_by) == (2, LimitedBy.MIN_REPLICAS)


def test_whoever_follows_the_recommendation_arrives_and_stays() -> None:
    job = Job(EXTERNAL)
    job.run(65)
    for _ in range(20):
        job.run(15, requested=math.ceil(job.answers[-1].recommended or 4))  # as an HPA does with AverageValue "1"
    assert job.actors == job.answers[-1].recommended == 40
    answer = job.run(60, capacity=20.0)
    assert answer.desired == 40, "no other number was asked for"
    assert answer.recommended == pytest.approx(20, abs=1)


def test_figures_that_stay_away_hold_a_recommendation() -> None:
    job = Job(EXTERNAL)
    job.run(120)
    answer = job.run(120, seen=False, capacity=80.0)
    assert (answer.recommended, answer.memory.active) == (40, "StaleMetrics")
    assert "nothing new to recommend" in answer.last_decision


def test_from_external_to_internal_goes_on_from_there() -> None:
    job = Job(EXTERNAL, actors=60)
    job.run(300)
    job.spec = SPEC
    assert job.run(1).desired in (48, 60), "a fifth at most, and without delay: the window has been seen already"
    assert job.run(100).desired == 40


def test_evictions_change_nothing() -> None:
    job = Job(actors=40)
    job.run(300)
    lost = advance(job.spec, job.memory, figures(job.now, 32), supply(32, 40, pending=8), job.now + 15)
    assert (lost.desired, lost.memory.rates.window) == (40, job.memory.rates.window)


def test_a_new_learner_warms_up_again() -> None:
    job = Job(actors=40)
    job.run(300)
    there = supply(40, 40, learner_started_seconds=job.now)
    for now in (job.now + second for second in range(59)):
        answer = advance(job.spec, job.memory, figures(now, 40, capacity=90), there, now)
        job.memory = answer.memory
    assert (answer.desired, answer.memory.active in {"WarmingUp", "ValidMetricFound"}) == (40, True)


def test_the_window_and_its_memory_are_bounded() -> None:
    memory, wanted = AutoscalingMemory(), [50 - index % 37 for index in range(500)]
    for index, number in enumerate(wanted):
        memory = with_wanted(memory, number, T0 + index)
        assert len(memory.highest) <= MOST_ENTRIES
    assert most_wanted(memory, 30, T0 + 500) == max(wanted[-180:])
    assert (most_after(1), most_after(10), least_after(1), least_after(10)) == (5, 20, 0, 8)


def test_who_goes_first() -> None:
    def actor(name: str, phase: Phase = Phase.READY, *, leaving: bool = False, started: float = 10.0) -> Member:
        return Member(name, Role.ACTOR, phase, ready_seconds=started, leaving_node=leaving)

    actors = [actor("a"), actor("b"), actor("c", started=20.0), actor("d", leaving=True), actor("e", Phase.STARTING)]
    lags = {"a": 3.0, "b": 9.0, "c": 3.0}
    known = {name: MemberMemory(name=name, time=0.0) for name in "fgh"}
    known["g"] = known["g"].model_copy(update={"quick_ends": 9})
    known["h"] = known["h"].model_copy(update={"dismissed": True})
    members = {each.name: each for each in actors}
    order = sorted("abcdefgh", key=lambda name: _stays(name, members.get(name), known.get(name), lags))
    assert "".join(order) == "hgfedbca"


def test_broken_memory_is_named() -> None:
    with pytest.raises(ValueError, match=r"rates\.window\.busy"):
        AutoscalingMemory.from_dict({"rates": {"window": {"busy": "much"}}})
    assert AutoscalingMemory.from_dict({"unknown": 1}) == AutoscalingMemory()
