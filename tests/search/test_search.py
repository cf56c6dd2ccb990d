"""The search finds nothing, finds what is planted, and its model of the operator's calls is what the operator does."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from rljob.api import read_manifest
from rljob.api.conditions import Reason
from rljob.api.controller_memory import OutcomeMemory
from rljob_operator.core import decide, turn as core_turn
from rljob_operator.core.context import ReconcileContext, complete
from rljob_operator.core.member import Member, Phase
from rljob_operator.core.rules import failures, start_and_drain, success, suspension
from rljob_operator.kube.job import members as pod_members, observe
from rljob_operator.kube.job.apply import PodWriter
from rljob_operator.kube.job.stored import read
from rljob_operator.kube.render import names
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.watch.expectations import Expectations
from rljob_operator.kube.watch.pods import PodCache

from tests.search import turns
from tests.search.explorer import Explorer
from tests.search.jobs import JOBS, SUPPORT, SmallJob, short_waits
from tests.search.pods import document
from tests.search.turns import Turned
from tests.unit.operator.kube.fake_api_server import says, served


@pytest.fixture(scope="module", autouse=True)
def waits() -> Iterator[None]:
    with short_waits():
        yield


ORDER = ("unask", "label", "ask", "delete", "create")


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_nothing_is_found(job: SmallJob) -> None:
    """The first quarter of a minute; `make search` goes on from there."""
    found = Explorer(job).run(seconds=15, states=200_000)
    assert found.complete > 0, "the course that nothing disturbs is explored to its end"
    assert found.findings == [], "\n".join(
        [each.words + "".join(f"\n  {step}" for step in each.path) for each in found.findings]
    )


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_the_calls_of_the_model_are_those_of_the_operator(job: SmallJob) -> None:
    asyncio.run(compare(job))


async def compare(job: SmallJob) -> None:
    turns = with_calls(job, most=60)
    async with served(says(200, {"metadata": {}})) as (server, client):
        writer = PodWriter(client, PodCache(lambda key, kind, pod: None), Expectations(), Settings(image="rl:1"))
        for turned, documents in turns:
            server.asked.clear()
            stored = read(manifest(job), turned.decision.status)
            await writer.carry_out(stored, turned.decision, documents)
            told = [await call_of(request) for request in server.asked]
            meant = [(op.verb, op.uid) for op in turned.calls if op.verb != "settle"]
            assert Counter(told) == Counter(meant)
            order = [ORDER.index(verb) for verb, _ in told if verb != "ask"]
            assert order == sorted(order), "what is new is made last"


def counts_disruptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_members, "_disrupted", lambda pod, terminated: "")


def forgets_that_it_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    as_it_is = pod_members.shown
    monkeypatch.setattr(pod_members, "shown", lambda *given: replace(as_it_is(*given), asked=False))


def counts_an_end_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_is_new", lambda context, member, remembered: True)


def acts_before_it_has_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_turn, "_acts", lambda observed, decision: False)
    monkeypatch.setattr(core_turn, "_SEEN", core_turn._SEEN | {"restarts", "failures", "controller"})


def starts_beside_one_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    def startable(context: Any, name: str, member: Member | None, known: Any) -> bool:
        down = member is None or member.phase in (Phase.ABSENT, Phase.EXITED, Phase.DRAINING)
        return down and failures.restart_due(context, member, known.get(name)) <= 0

    monkeypatch.setattr(start_and_drain, "_startable", startable)


def waits_for_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspension, "_checkpoint_is_there", lambda context, memory: True)


def knows_its_pods_by_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_label(pod: Any) -> str | None:
        return pod["metadata"]["labels"].get(names.MEMBER_LABEL)

    monkeypatch.setattr(pod_members, "member_of", by_label)


def believes_in_a_claim_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(status: Any, said: Any, pods: Any, learner: Any, where: str, *, going: bool) -> Any:
        return observe.newest_checkpoint(status, said, pods), where

    monkeypatch.setattr(turns, "checkpoints", newest)


def starts_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "restart_due", lambda context, member, remembered: 9.0 if remembered else 0.0)


def takes_half_the_frames_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def raw_frames(context: ReconcileContext) -> OutcomeMemory | None:
        seen = context.observed.learner
        half = seen is not None and (seen.raw_frames_total or 0) >= 150
        return complete(context, Reason.STEP_BUDGET_REACHED, "") if half else None

    rules = tuple(raw_frames if rule is success.raw_frames else rule for rule in decide.ENDING_RULES)
    monkeypatch.setattr(decide, "ENDING_RULES", rules)


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (counts_disruptions, "only failures count"),
        (forgets_that_it_asked, "what was asked for is no failure"),
        (counts_an_end_at_every_look, "each end counts once"),
        (acts_before_it_has_stored, "what was counted is stored first"),
        (starts_beside_one_that_leaves, "one at a time"),
        (waits_for_no_checkpoint, "a suspended job is saved"),
        (knows_its_pods_by_their_labels, "suspended is suspended"),
        (believes_in_a_claim_that_goes, "a checkpoint that is lost is told"),
        (starts_nothing_again, "good weather leads somewhere"),
        (takes_half_the_frames_for_all, "Complete after a verdict alone"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_planted_fault_is_found(plant: Any, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = Explorer(JOBS["impala"]).run(seconds=100, states=150_000, wanted=rule)
    assert rule in {finding.rule for finding in found.findings}


def with_calls(job: SmallJob, most: int) -> list[tuple[Turned, list[dict[str, Any]]]]:
    """Turns of the first states of a search that lead to calls, with the pods that they saw; those with different verbs."""
    found: dict[Any, tuple[Turned, list[dict[str, Any]]]] = {}
    explorer = Explorer(job)
    taken = explorer.operator.turn

    def noted(world: Any) -> Turned:
        turned, pods = taken(world), explorer.operator.seen(world)
        if turned.calls:
            kind = tuple((op.verb, op.uid.partition(":")[0]) for op in turned.calls), tuple(p.stage for p in pods)
            found.setdefault(kind, (turned, [document(pod) for pod in pods]))
        return turned

    explorer.operator.turn = noted  # type: ignore[method-assign]
    explorer.run(seconds=60, states=15_000)
    return list(found.values())[:most]


def manifest(job: SmallJob) -> dict[str, Any]:
    found = read_manifest(SUPPORT / job.manifest, job.written)
    found["metadata"] |= {"name": "job", "uid": "job", "namespace": "team", "generation": 1, "resourceVersion": "1"}
    return dict(found)


async def call_of(request: web.Request) -> tuple[str, str]:
    """A request of the operator as a call of the model."""
    body = await request.json()
    if request.method == "POST":
        return "create", body["metadata"]["labels"][names.MEMBER_LABEL]
    if request.method == "DELETE":
        return "delete", body["preconditions"]["uid"]
    change = body["metadata"]
    if "labels" in change:
        return "label", change["uid"]
    return "unask" if change["annotations"][names.ASKED_ANNOTATION] is None else "ask", change["uid"]
