"""The bottleneck's sentence: one situation a line, and no figures whatever make it fall silent.

What one more of each part brings, against queues that are simulated job by job.
"""

import heapq
import math
import random
import re
from collections import deque

import pytest
from hypothesis import given, strategies as st
from rljob.telemetry.bottleneck import Kind, bottleneck
from rljob.telemetry.sizing import SLOWEST_ALONE, Pipeline, pipeline


def stages(role: str, **shares: float) -> dict[str, float]:
    return {f"stage/{role}/{stage}": share for stage, share in shares.items()}


MIXED_ACTOR = stages("actor", env=0.5, infer=0.35, encode=0.1, send=0.05, blocked=0.0)
ENV_ACTOR = stages("actor", env=0.9, infer=0.06, encode=0.03, send=0.01, blocked=0.0)
INFER_ACTOR = stages("actor", env=0.1, infer=0.85, encode=0.03, send=0.02, blocked=0.0)
SEND_ACTOR = stages("actor", env=0.2, infer=0.1, encode=0.1, send=0.6, blocked=0.0)
IDLE_REPLAY = stages("replay", idle=0.8, insert=0.1, sample=0.1)
BUSY_REPLAY = stages("replay", idle=0.05, insert=0.35, sample=0.6)


def flow(wait: float, held: float, depth: float | None = None) -> dict[str, float]:
    figures = {"learner_wait_fraction": wait, "actors_blocked_fraction": held}
    return figures if depth is None else figures | {"queue_depth_batches": depth, "queue_bound_batches": 8.0}


@pytest.mark.parametrize(
    ("figures", "state", "limiter", "kind", "words"),
    [
        ({}, "", "", Kind.WarmingUp, ["warming up"]),
        (flow(1.0, 0.0) | {"replay/items": 1200}, "WarmingUp", "", Kind.WarmingUp, ["1,200 transitions"]),
        (flow(1.0, 0.0), "WaitingForReplay", "samples", Kind.WarmingUp, []),
        (flow(0.62, 0.0, 0.0) | MIXED_ACTOR, "Training", "", Kind.ActorsTooSlow, ["62 %", "actors.replicas"]),
        (flow(0.62, 0.0) | {"actors_running": 3}, "Training", "samples", Kind.ActorsTooSlow, ["3 now"]),
        (flow(0.62, 0.0, 5.0), "Training", "samples", Kind.ActorsTooSlow, ["experience"]),
        ({"stage/learner/wait": 0.4}, "", "", Kind.ActorsTooSlow, ["40 %"]),
        (flow(0.5, 0.0, 0.2) | ENV_ACTOR, "Training", "", Kind.EnvironmentTooSlow, ["50 %", "90 %", "environment"]),
        (flow(0.5, 0.0, 0.2) | INFER_ACTOR, "Training", "", Kind.InferenceTooSlow, ["85 %", "envsPerActor"]),
        (flow(0.5, 0.0, 0.2) | SEND_ACTOR, "Training", "", Kind.TransportTooSlow, ["70 %", "sending"]),
        (flow(0.5, 0.0, 6.0) | BUSY_REPLAY, "Training", "", Kind.ReplayTooSlow, ["95 %", "replay.shards"]),
        (flow(0.5, 0.0) | BUSY_REPLAY | MIXED_ACTOR, "Training", "", Kind.ReplayTooSlow, ["replay.shards"]),
        (flow(0.5, 0.0, 6.0) | IDLE_REPLAY, "Training", "none", Kind.TransportTooSlow, ["80 %", "prefetch"]),
        (flow(0.5, 0.0, 0.1) | BUSY_REPLAY | MIXED_ACTOR, "Training", "", Kind.ActorsTooSlow, []),
        (flow(0.4, 0.4, 4.0) | BUSY_REPLAY, "Training", "", Kind.ReplayTooSlow, ["both wait"]),
        (flow(0.4, 0.4, 4.0) | IDLE_REPLAY, "Training", "", Kind.ReplayTooSlow, ["errorBuffer"]),
        # A full queue keeps actors back by rights, and what the learner waits for is on its way.
        (flow(0.25, 0.5, 7.0) | IDLE_REPLAY, "Training", "", Kind.TransportTooSlow, ["25 %", "prefetch"]),
        # A side that waits many times longer than the other waits for it, not for the band: unless the replay service is busy.
        (flow(0.24, 0.8, 4.0) | IDLE_REPLAY, "Training", "", Kind.LearnerTooSlow, ["held back 80 %"]),
        (flow(0.8, 0.2, 0.1) | IDLE_REPLAY | MIXED_ACTOR, "Training", "", Kind.ActorsTooSlow, ["80 %"]),
        (flow(0.24, 0.8, 4.0) | BUSY_REPLAY, "Training", "", Kind.ReplayTooSlow, ["both wait"]),
        (
            flow(0.02, 0.7, 8.0) | stages("learner", wait=0.02, copy=0.1, update=0.88),
            "Training",
            "inserts",
            Kind.LearnerTooSlow,
            ["70 %", "'update' (88 %)", "accelerator"],
        ),
        (
            flow(0.5, 0.0) | {"queue_depth_batches": 0.0, "queue_bound_batches": 0.0} | BUSY_REPLAY,
            "Training",
            "",
            Kind.ReplayTooSlow,
            [],
        ),
        (flow(0.05, 0.1, 4.0), "Training", "", Kind.Balanced, ["5 %", "10 %"]),
        (flow(float("nan"), float("inf")), "Training", "", Kind.WarmingUp, []),
    ],
)
def test_situations(figures: dict[str, float], state: str, limiter: str, kind: Kind, words: list[str]) -> None:
    verdict = bottleneck(figures, state=state, limiter=limiter)
    assert verdict.kind is kind, verdict.sentence
    assert [word for word in words if word not in verdict.sentence] == []


@pytest.mark.parametrize("wait", [0.2, 0.5, 0.99])
@pytest.mark.parametrize(
    "actor", [MIXED_ACTOR, ENV_ACTOR, INFER_ACTOR, SEND_ACTOR, {}], ids=["mixed", "env", "infer", "send", "none"]
)
def test_a_starved_learner_never_blames_itself(wait: float, actor: dict[str, float]) -> None:
    verdict = bottleneck(flow(wait, 0.0, 0.0) | actor, state="Training")
    assert verdict.kind not in (Kind.LearnerTooSlow, Kind.Balanced, Kind.WarmingUp)
    assert verdict.share == wait


@pytest.mark.parametrize("actor", [MIXED_ACTOR, ENV_ACTOR, INFER_ACTOR], ids=["mixed", "env", "infer"])
def test_no_further_core_is_advised_where_there_is_none(actor: dict[str, float]) -> None:
    figures = flow(0.6, 0.0, 0.0) | actor | {"actors_running": 0.97}
    for cores in (None, 8):
        assert "actors.replicas, 1 now" in bottleneck(figures, cores=cores).sentence
    full = bottleneck(figures, cores=2).sentence
    assert ("no core beyond the 2" in full, "actors.replicas" in full) == (True, False)


@pytest.mark.parametrize("figures", [flow(0.5, 0.0, 0.2) | SEND_ACTOR, flow(0.5, 0.0, 6.0) | IDLE_REPLAY])
def test_no_network_is_advised_on_one_machine(figures: dict[str, float]) -> None:
    away = re.compile("network|on one machine")
    for cores in (2, 64):
        here = bottleneck(figures, cores=cores)
        assert here.kind is Kind.TransportTooSlow
        assert (f"what else uses the {cores} cores" in here.sentence, away.search(here.sentence)) == (True, None)
    assert away.search(bottleneck(figures).sentence)


@pytest.mark.parametrize(
    ("actors", "cores", "advised"), [(1.0, 8, ["or more cores"]), (3.0, 4, ["fewer actors"]), (1.0, 2, [])]
)
def test_a_slow_learner_is_advised_what_the_machine_has(actors: float, cores: int, advised: list[str]) -> None:
    said = bottleneck(flow(0.0, 0.6) | {"actors_running": actors}, cores=cores).sentence
    found = re.findall("or more cores|more cores|fewer actors", said)
    assert set(advised) <= set(found) if advised else found == []


NAMES = [
    "learner_wait_fraction", "actors_blocked_fraction", "queue_depth_batches", "actors_running", "replay/items",
    "stage/learner/wait", "stage/learner/update", "stage/replay/idle", "stage/replay/insert", "stage/actor/env",
    "stage/actor/infer", "stage/actor/send", "stage/actor/blocked", "stage/actor/", "stage//", "x",
]  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(NAMES), st.floats()),
    st.sampled_from(["", "Training", "WarmingUp", "Finishing", "?"]),
    st.sampled_from(["", "none", "samples", "inserts", "?"]),
)
def test_always_a_sentence(figures: dict[str, float], state: str, limiter: str) -> None:
    verdict = bottleneck(figures, state=state, limiter=limiter)
    assert re.fullmatch(r"(?s)[A-Z](?!.*nan).*\.", verdict.sentence)
    assert 0.0 <= verdict.share <= 1.0


QUEUE = {"queue/capacity": 64.0, "queue/received": 100.0, "queue/waiting": 3.0}


@pytest.mark.parametrize(
    ("figures", "state", "kind", "words"),
    [
        (flow(0.5, 0.0, 3.0), "Training", Kind.ActorsTooSlow, ["unroll more often (epochs)", "actors.replicas"]),
        (flow(0.0, 0.6), "Training", Kind.LearnerTooSlow, ["learn from each unroll less often"]),
        (flow(0.4, 0.4), "Training", Kind.Balanced, ["they take turns", "unrollQueue.capacity"]),
        (
            flow(0.0, 0.0) | {"queue/dropped/stale": 40.0},
            "Training",
            Kind.Balanced,
            ["40 % were too old", "maxPolicyLagUpdates"],
        ),
        ({}, "WaitingForUnrolls", Kind.WarmingUp, ["3 unrolls wait"]),
    ],
)
def test_a_job_of_unrolls_is_told_about_its_queue(
    figures: dict[str, float], state: str, kind: Kind, words: list[str]
) -> None:
    verdict = bottleneck(QUEUE | figures, state=state)
    assert (verdict.kind, "replay" in verdict.sentence) == (kind, False)
    assert [word for word in words if word not in verdict.sentence] == []


@pytest.mark.parametrize("wait", [0.0, 0.5])
def test_actors_that_wait_for_their_actions_are_told_so(wait: float) -> None:
    """Whether the learner waits as well or not: it does, when no actor plays."""
    figures = {"stage/inference/wait": 0.1, "stage/inference/evaluate": 0.8, "stage/inference/answer": 0.1}
    figures |= {"learner_wait_fraction": wait, "actors_blocked_fraction": 0.4}
    verdict = bottleneck({**figures, "inference/latency_p50_seconds": 0.012}, state="Training")
    assert verdict.kind is Kind.InferenceTooSlow
    words = ("90 %", "takes 12.0 ms to answer", "inference.replicas")
    assert [word for word in words if word not in verdict.sentence] == []
    idle = {**figures, "stage/inference/wait": 0.9, "stage/inference/evaluate": 0.0}
    assert bottleneck(idle, state="Training").kind is not Kind.InferenceTooSlow
    # An empty queue withholds no credit: what holds the actors up is the way to an idle server and back.
    starved = bottleneck({**idle, "queue_depth_batches": 0.0, "queue_bound_batches": 2.0}, state="Training")
    assert (starved.kind is Kind.InferenceTooSlow) is (wait > 0)


Figures = dict[str, float]
STEPS = 20
"""The steps of a chunk."""


def simulated(actor: float, learner: float, actors: int, places: int, chunks: int = 4000) -> Figures:
    """The figures of actors that put chunks into a queue of so many places and of a learner that takes them: a chunk costs each
    its mean seconds, drawn anew for every one; an actor holds its chunk until there is a place for it."""
    draw = random.Random(7)
    playing = [(draw.expovariate(1 / actor), number) for number in range(actors)]
    heapq.heapify(playing)
    held: deque[tuple[float, int]] = deque()
    queue, free_at, learner_idle, blocked, now, learned = 0, 0.0, True, 0.0, 0.0, 0
    busy = 0.0
    while learned < chunks:
        now = min(playing[0][0] if playing else math.inf, math.inf if learner_idle else free_at)
        if playing and playing[0][0] == now:
            _, number = heapq.heappop(playing)
            held.append((now, number))
        else:
            learner_idle, learned = True, learned + 1
        while held and queue < places:
            since, number = held.popleft()
            blocked, queue = blocked + now - since, queue + 1
            heapq.heappush(playing, (now + draw.expovariate(1 / actor), number))
        if learner_idle and queue:
            took = draw.expovariate(1 / learner)
            queue, learner_idle, free_at, busy = queue - 1, False, now + took, busy + took
    return {
        "steps_per_second": STEPS * learned / now,
        "actors_running": float(actors),
        "learner_wait_fraction": max(0.0, 1 - busy / now),
        "actors_blocked_fraction": blocked / (actors * now),
    }


@pytest.mark.parametrize("actors", [1, 2, 4])
@pytest.mark.parametrize("share", [0.3, 0.8, 1.0, 1.3, 3.0])
def test_what_another_actor_brings_is_what_it_is_said_to_bring(actors: int, share: float) -> None:
    """``share``: the learner's speed beside that of all actors; a short queue, in which both wait for each other now and then."""
    learner = 0.1 / actors / share
    before, after = (simulated(0.1, learner, count, places=4) for count in (actors, actors + 1))
    parts = pipeline(before)
    assert parts.steps_per_second(actors) == pytest.approx(before["steps_per_second"], rel=0.01)
    gain = after["steps_per_second"] / before["steps_per_second"]
    assert parts.steps_per_second(actors + 1) / parts.steps_per_second(actors) == pytest.approx(gain, rel=0.04)
    assert parts.knee() == pytest.approx(actors * share, rel=0.07)


def figures(steps: float, actors: float, wait: float, blocked: float, **more: float) -> Figures:
    """``more``: figures of processes and stages, whose names have a slash for each double underscore here."""
    return {
        "steps_per_second": steps,
        "actors_running": actors,
        "learner_wait_fraction": wait,
        "actors_blocked_fraction": blocked,
        **{name.replace("__", "/"): value for name, value in more.items()},
    }


BUSY = figures(1000, 4, 0.5, 0.6, stage__replay__idle=0.02, stage__replay__insert=0.98)
LINK = figures(1000, 2, 0.4, 0.5, processes__actor__send_queue_bytes=9000, processes__actor__message_bytes=6000)
"""Two actors whose sockets hold three messages on average."""
ONE_CORE = figures(500, 1, 0, 0) | {
    f"processes/{role}/{name}": 0.5 for role in ("actor", "learner") for name in ("cpu_cores", "core_wait_cores")
}
"""Two roles on one core, which each could fill."""


@pytest.mark.parametrize(
    ("given", "cores", "more", "steps_per_second", "rel"),
    [
        # Each waits while the other works: half as long for one is a quarter less for both.
        (figures(100, 1, 0.5, 0.5), None, {"actors": 1}, 100, None),
        (figures(100, 1, 0.5, 0.5), None, {"actors": 2}, 100 / 0.75, None),
        # A busy shard is worth another.
        (BUSY, None, {"actors": 5}, 1000, 0.02),
        (BUSY, None, {"actors": 4, "shards": 2}, 1800, 0.1),
        # A link that is never empty is worth a faster one.
        (LINK, None, {"actors": 2, "ways": 2}, 1600, 0.1),
        (LINK, None, {"actors": 3}, 1000, 0.02),
        (LINK | {"processes/actor/send_queue_bytes": 30.0}, None, {"actors": 2, "ways": 2}, 1000, 0.02),
        # Time without a core is no work: together another core doubles what they make.
        (ONE_CORE, 1, {"actors": 1}, 500, None),
        (ONE_CORE, 1, {"actors": 2}, 500, None),
        (ONE_CORE, 1, {"actors": 1, "further_cores": 1}, 1000, 0.02),
    ],
)
def test_more_of_a_part_brings_what_the_others_leave_it(
    given: Figures, cores: float | None, more: dict[str, float], steps_per_second: float, rel: float | None
) -> None:
    assert pipeline(given, cores=cores).steps_per_second(**more) == pytest.approx(steps_per_second, rel=rel)


def test_what_the_parts_take_is_told_by_waits_sockets_and_cores() -> None:
    turns, alone = pipeline(figures(100, 1, 0.5, 0.5)), pipeline(ONE_CORE, cores=1)
    assert (turns.overlap, 1 / alone.actor_seconds) == (pytest.approx(1.0), pytest.approx(1000))
    assert pipeline(LINK, cores=2).way_seconds == 0, "on one machine the same bytes are but a slow reader"


def test_cores_that_others_take_are_not_counted_on() -> None:
    busy = figures(
        500, 1, 0.6, 0, processes__actor__cpu_cores=0.8, processes__actor__core_wait_cores=0.2,
        processes__learner__cpu_cores=0.4, processes__learner__core_wait_cores=0.6,
    )  # fmt: skip
    found = [pipeline(busy | more, cores=2).cores for more in ({"processes/learner/core_wait_cores": 0.0}, {})]
    assert found == pytest.approx([1.2 + 0.6, 1.2])


def test_before_anything_is_learned_there_is_nothing_to_say() -> None:
    learning = simulated(0.1, 0.1, 1, places=4, chunks=50)
    lacks = [
        ("steps_per_second", 0.0),
        ("actors_running", 0.0),
        ("learner_wait_fraction", 1.0),
        ("steps_per_second", math.nan),
    ]
    assert [pipeline(each) for each in ({}, *(learning | {name: none} for name, none in lacks))] == [None] * 5


SHARE = st.floats(0, 1)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "steps_per_second",
                "actors_running",
                "learner_wait_fraction",
                "actors_blocked_fraction",
                "stage/replay/insert",
                *(
                    f"processes/{role}/{name}"
                    for role in ("actor", "learner")
                    for name in ("cpu_cores", "core_wait_cores")
                ),
            ]
        ),
        st.one_of(SHARE, st.floats(-1e15, 1e15)),
    ),
    st.sampled_from([None, 0.5, 2.0, 64.0]),
)
def test_more_of_anything_never_costs_steps(figures: Figures, cores: float | None) -> None:
    parts = pipeline(figures, cores=cores)
    if parts is None:
        return
    assert 1 <= parts.overlap <= SLOWEST_ALONE
    now = parts.steps_per_second(2)
    assert 0 < now < math.inf
    for more in ({"actors": 3}, {"shards": 2}, {"ways": 2.0}, {"learners": 2.0}, {"further_cores": 1.0}):
        assert parts.steps_per_second(**{"actors": 2, **more}) >= now * (1 - 1e-9), more
    assert parts.knee() > 0


@pytest.mark.parametrize("shards", [1, 3])
def test_a_further_shard_saves_inserts_and_no_draws(shards: int) -> None:
    """Each batch is asked of every shard."""
    busy = figures(100, 1, 0.8, 0.8, stage__replay__poll=0.1, stage__replay__ingest=0.3, stage__replay__sample=0.6)
    parts = pipeline(busy, shards=shards)
    found = [parts.shard_seconds(count) for count in (shards, 2 * shards)]
    assert found == pytest.approx([0.9 / 100, (0.6 + 0.3 / 2) / 100])


def test_the_knee_is_where_actors_make_as_much_as_the_rest_takes() -> None:
    parts = Pipeline(actor_seconds=1e-3, learner_seconds=1e-4, replay_seconds=4e-4)
    assert (parts.knee(), parts.knee(shards=4)) == (pytest.approx(2.5), pytest.approx(10))
    steps = {actors: parts.steps_per_second(actors, 4) for actors in (9, 10, 13, 14)}
    assert (steps[10] / steps[9] > 1.09, steps[14] / steps[13] < 1.001) == (True, True)
