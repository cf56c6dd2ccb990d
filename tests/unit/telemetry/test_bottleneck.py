"""The bottleneck's sentence: one situation a line, and no figures whatever make it fall silent."""

import re

import pytest
from hypothesis import given, strategies as st
from rljob.telemetry.bottleneck import Kind, bottleneck


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
        assert (f"what else takes the {cores} cores" in here.sentence, away.search(here.sentence)) == (True, None)
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
