"""Which part of a run holds the others up, in one sentence with its numbers and what to change.

Four places can be slow: the actors (their environments, their inference), the transport, the replay service and the
learner. Two shares tell on which side of the replay the slow one stands: how long the learner waited for a batch, and how
long the actors were held back without a credit. The rate limiter's state then tells whether a waiting learner lacks
*experience* (actors) or its *delivery* (replay, transport); the stages of that role tell which of its parts it is.

A job without replay has a queue of unrolls in the learner instead (``queue/...``), of which the same two shares tell all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from rljob.telemetry.flat_figures import numbers_in


class Kind(StrEnum):
    """What is slow."""

    ActorsTooSlow = "ActorsTooSlow"
    LearnerTooSlow = "LearnerTooSlow"
    ReplayTooSlow = "ReplayTooSlow"
    EnvironmentTooSlow = "EnvironmentTooSlow"
    InferenceTooSlow = "InferenceTooSlow"
    TransportTooSlow = "TransportTooSlow"
    Balanced = "Balanced"
    WarmingUp = "WarmingUp"


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What is slow, the sentence for the reader, and the share of time (0..1) that it rests on."""

    kind: Kind
    sentence: str
    share: float


NOTABLE: Final = 0.15
"""A side that waits less than this share of its time is not held up."""

DOMINANT: Final = 0.7
"""A stage that takes this share of its role's working time dominates the role."""

LOPSIDED: Final = 3.0
"""Where both sides wait and one of them so many times longer, the other one is what holds the run up: its own waiting is what
taking turns costs, and without it the first would wait hardly less."""

_DELIVERABLE_BATCHES = 1.0
"""From this queue depth on, the limiter would hand out a batch at once: what is missing is its delivery."""

_FULL: Final = 0.7
"""A queue that holds this share of its bound on average is full: who draws from it does not wait for the limiter."""

_QUEUE: Final = "queue/capacity"
"""Known in a job of unrolls alone."""

_STARTING = frozenset({"Starting", "WaitingForReplay", "WaitingForUnrolls", "WarmingUp"})
_IDLE_STAGES = frozenset({"idle", "poll", "wait", "blocked", "evaluation"})
_MOVING_STAGES = frozenset({"encode", "send", "receive", "decode"})


def bottleneck(
    figures: Mapping[str, float], *, state: str = "", limiter: str = "", cores: int | None = None
) -> Bottleneck:
    """Judges one interval of a run.

    Args:
        figures: the flat figures of one record (:func:`rljob.telemetry.flat_figures.flatten_status`); those that are missing
            or not finite count as unknown. Used: ``learner_wait_fraction`` (else ``stage/learner/wait``),
            ``actors_blocked_fraction`` (else ``stage/actor/blocked``), ``queue_depth_batches`` and its bound,
            ``replay/items``, ``actors_running``, ``stage/<role>/<stage>``; ``queue/...`` in a job of unrolls.
        state: the learner's state, if known.
        limiter: the side that the rate limiter blocks: ``samples``, ``inserts``, ``none``, or empty if unknown.
        cores: of the one machine that all roles share, None where they have machines of their own: what needs a further core
            is not advised where learner and actors have taken all.
    """
    known = numbers_in(figures)
    verdict = _judge(known, state, limiter, cores)
    return replace(verdict, sentence=verdict.sentence + _given_up(known))


def _judge(known: Mapping[str, float], state: str, limiter: str, cores: int | None) -> Bottleneck:
    # The number of cores where the learner and an actor each have taken them all; None where one may be free.
    taken = cores if cores is not None and round(known.get("actors_running", 0.0)) + 1 >= cores else None
    if state in _STARTING:
        return _warming_up(known)
    wait = known_share(known, "learner_wait_fraction", "stage/learner/wait")
    held = known_share(known, "actors_blocked_fraction", "stage/actor/blocked")
    if wait is None and held is None:
        return _warming_up(known)
    wait, held = wait or 0.0, held or 0.0
    if held >= NOTABLE and _answers_hold_up(known, wait):
        return _inference_is_slow(known, held)
    lopsided = max(wait, held) >= LOPSIDED * min(wait, held) and busy_share(known, "replay") < DOMINANT
    if min(wait, held) >= NOTABLE and not lopsided:
        return _delivery_is_slow(known, wait, cores) if _is_full(known) else _both_wait(known, wait, held)
    if wait >= NOTABLE and wait > held:
        if _QUEUE in known:  # the queue is in the learner itself: what it waits for is not there yet
            return _actors_are_slow(known, wait, cores, taken)
        limits = known.get("queue_bound_batches", 1.0) > 0  # without a rate limiter there is no depth
        depth = known.get("queue_depth_batches") if limits else None
        may_deliver = depth >= _DELIVERABLE_BATCHES if depth is not None else busy_share(known, "replay") >= DOMINANT
        if may_deliver and limiter != "samples":
            return _delivery_is_slow(known, wait, cores)
        return _actors_are_slow(known, wait, cores, taken)
    if held >= NOTABLE:
        return _learner_is_slow(known, held, taken)
    return Bottleneck(
        Kind.Balanced,
        f"The run is balanced: the learner waited {_percent(wait)} of the time and the actors were held back "
        f"{_percent(held)}; to go faster, add to both sides at once.",
        max(wait, held),
    )


def _warming_up(known: Mapping[str, float]) -> Bottleneck:
    told = {"replay/items": "transitions are stored", "queue/waiting": "unrolls wait"}
    stored = "".join(f" ({known[name]:,.0f} {words})" for name, words in told.items() if name in known)
    said = f"The run is still warming up{stored}: wait until the learner takes its first batches."
    return Bottleneck(Kind.WarmingUp, said, 0.0)


def _both_wait(known: Mapping[str, float], wait: float, held: float) -> Bottleneck:
    lead = f"The learner waited {_percent(wait)} of the time and the actors were held back {_percent(held)}: "
    if _QUEUE in known:
        return Bottleneck(
            Kind.Balanced,
            f"{lead}they take turns, because the queue of unrolls holds too little for both to work at once; raise "
            "unrollQueue.capacity by a batch (with PPO: maxPolicyLag: 1), which makes experience a batch older, or run more "
            "actors with fewer environments each.",
            min(wait, held),
        )
    advice = "both wait for the replay service, which is the bottleneck; add shards (replay.shards), or give it a faster core."
    if _stages(known, "replay") and (busy := busy_share(known, "replay")) < DOMINANT:
        advice = (
            f"neither can run although the replay service idles {_percent(1 - busy)}, so the rate limiter's band is too narrow; "
            "raise replay.rateLimiter.errorBuffer or shorten the chunks (chunkLength)."
        )
    return Bottleneck(Kind.ReplayTooSlow, lead + advice, min(wait, held))


def _delivery_is_slow(known: Mapping[str, float], wait: float, cores: int | None) -> Bottleneck:
    busy = busy_share(known, "replay")
    lead = f"The learner waited {_percent(wait)} of the time although the replay service had experience to give: "
    if not _stages(known, "replay") or busy >= DOMINANT:
        at_work = f", at work {_percent(busy)} of the time," if busy else ""
        return Bottleneck(
            Kind.ReplayTooSlow,
            f"{lead}the replay service{at_work} is the bottleneck; add shards (replay.shards), or give it a core of its "
            "own. More actors will not help.",
            wait,
        )
    return Bottleneck(
        Kind.TransportTooSlow,
        f"{lead}batches are under way too long while the replay service idles {_percent(1 - busy)}, so the transport is the "
        "bottleneck; prefetch more (prefetchBatches), or "
        f"{_a_shorter_way('put learner and replay on one machine', cores)}. More actors will not help.",
        wait,
    )


def _actors_are_slow(known: Mapping[str, float], wait: float, cores: int | None, taken: int | None) -> Bottleneck:
    lead = f"The learner waited {_percent(wait)} of the time for experience: "
    now = f", {known['actors_running']:.0f} now" if "actors_running" in known else ""
    more = f"add actors (actors.replicas{now}) on further cores"
    if taken is not None:
        more = f"this machine has no core beyond the {taken} that learner and actors share, so take a larger one"
    work = {stage: share for stage, share in _stages(known, "actor").items() if stage not in _IDLE_STAGES and share > 0}
    shares = {stage: share / sum(work.values()) for stage, share in work.items()}
    moving = sum(share for stage, share in shares.items() if stage in _MOVING_STAGES)
    if shares.get("env", 0.0) >= DOMINANT:
        return Bottleneck(
            Kind.EnvironmentTooSlow,
            f"{lead}the actors spend {_percent(shares['env'])} of their work in the environment, which is the "
            f"bottleneck; {more}, or make the environment cheaper.",
            wait,
        )
    if shares.get("infer", 0.0) >= DOMINANT:
        return Bottleneck(
            Kind.InferenceTooSlow,
            f"{lead}the actors spend {_percent(shares['infer'])} of their work choosing actions, so inference is the "
            "bottleneck; more environments an actor share one pass (actors.envsPerActor), a smaller network costs less "
            "(network)" + (f", more actors add cores (actors.replicas{now})." if taken is None else f"; {more}."),
            wait,
        )
    if moving >= 0.5:
        apart = f"bring actors and {'learner' if _QUEUE in known else 'replay'} closer together or widen the network between them"
        return Bottleneck(
            Kind.TransportTooSlow,
            f"{lead}the actors spend {_percent(moving)} of their work packing and sending, so the transport is the "
            f"bottleneck; {_a_shorter_way(apart, cores)}.",
            wait,
        )
    return Bottleneck(
        Kind.ActorsTooSlow,
        f"{lead}the actors are the bottleneck; {more}, or use each "
        + (
            "unroll more often (epochs)."
            if _QUEUE in known
            else "sample more often (raise replay.rateLimiter.samplesPerInsert)."
        ),
        wait,
    )


def _a_shorter_way(apart: str, cores: int | None) -> str:
    """The advice where messages take long: ``apart`` between machines. On one machine they wait for a core, not for the
    network."""
    return apart if cores is None else f"find out what else uses the {cores} cores of this machine"


def _learner_is_slow(known: Mapping[str, float], held: float, taken: int | None) -> Bottleneck:
    work = {stage: share for stage, share in _stages(known, "learner").items() if stage not in _IDLE_STAGES}
    longest = sorted(work, key=lambda stage: -work[stage])[:1]
    where = "".join(f", whose longest stage is {stage!r} ({_percent(work[stage])})," for stage in longest)
    advice = [
        "give it an accelerator" + (" or more cores" if taken is None else ""),
        "learn from each unroll less often (epochs)"
        if _QUEUE in known
        else "lower replay.rateLimiter.samplesPerInsert",
    ]
    if taken is None:
        advice.append("run fewer actors for the same speed")
    elif known.get("actors_running", 0.0) > 1:
        advice.append("run fewer actors, which leaves it more of the cores")
    return Bottleneck(
        Kind.LearnerTooSlow,
        f"The actors were held back {_percent(held)} of the time: the learner{where} is the bottleneck; "
        f"{', '.join(advice[:-1])}, or {advice[-1]}.",
        held,
    )


def _answers_hold_up(known: Mapping[str, float], wait: float) -> bool:
    """Whether actors wait for actions rather than for credits: the server is busy, or the queue that would withhold credits is
    empty while the learner starves, so that only the way to the server and back is left."""
    if not _stages(known, "inference"):
        return False
    depth = known.get("queue_depth_batches", _DELIVERABLE_BATCHES)
    return busy_share(known, "inference") >= DOMINANT or (wait >= NOTABLE and depth < _DELIVERABLE_BATCHES)


def _inference_is_slow(known: Mapping[str, float], held: float) -> Bottleneck:
    latency = known.get("inference/latency_p50_seconds")
    answers = f" and takes {latency * 1e3:.1f} ms to answer" if latency is not None else ""
    return Bottleneck(
        Kind.InferenceTooSlow,
        f"The actors were held back {_percent(held)} of the time by the inference server in the learner, which is at work "
        f"{_percent(busy_share(known, 'inference'))} of its time{answers}, so central inference is the bottleneck; give it "
        "processes of its own (inference.replicas), an accelerator or more cores, or let actors compute their own actions "
        "(actors.inference: Local).",
        held,
    )


def _is_full(known: Mapping[str, float]) -> bool:
    """Whether the limiter has had batches to give nearly all the time."""
    bound = known.get("queue_bound_batches", 0.0)
    return _QUEUE not in known and bound > 0 and known.get("queue_depth_batches", 0.0) >= _FULL * bound


def _given_up(known: Mapping[str, float]) -> str:
    """What to do about unrolls that were too old to be learned from, where there are notably many."""
    stale, received = known.get("queue/dropped/stale", 0.0), known.get("queue/received", 0.0)
    if stale < NOTABLE * received or not stale:
        return ""
    return (
        f" Of all unrolls {_percent(stale / received)} were too old to be learned from; raise "
        "unrollQueue.maxPolicyLagUpdates (with PPO: maxPolicyLag: 1) or leave it out, or shorten the way with a "
        "smaller unrollQueue.capacity or fewer actors."
    )


def known_share(known: Mapping[str, float], *names: str) -> float | None:
    """The first of the figures that is known, as a share between 0 and 1."""
    return next((min(1.0, max(0.0, known[name])) for name in names if name in known), None)


def _stages(known: Mapping[str, float], role: str) -> dict[str, float]:
    prefix = f"stage/{role}/"
    return {
        name.removeprefix(prefix): min(1.0, max(0.0, share)) for name, share in known.items() if name.startswith(prefix)
    }


def busy_share(known: Mapping[str, float], role: str) -> float:
    """Share of a role's time that is not idle; 0 if its stages are unknown."""
    stages = _stages(known, role)
    return min(1.0, sum(share for stage, share in stages.items() if stage not in _IDLE_STAGES))


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
