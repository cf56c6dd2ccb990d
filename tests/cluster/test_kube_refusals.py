"""Pods that the API server refuses: they are said in its words, and nothing else is touched by it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import EVENTS, PODS, RLJOBS
from rljob_operator.kube.job.apply import CHUNK

from tests.cluster.control_plane import ControlPlane
from tests.cluster.policies import set_quota, webhook_away
from tests.cluster.reconciling import (
    TWO_ACTORS,
    BreakingClient,
    Clock,
    Kubelet,
    Run,
    bring_up,
    condition,
    conditions,
    message,
    started,
    status_of,
    written,
)


async def test_a_quota_bounds_growth_and_replacements_and_touches_nothing_that_runs(
    cluster: ControlPlane,
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    clock: Clock,
    run: Run,
    namespace: str,
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))

    async def a_minute_later(updates: int = 100) -> dict[str, Any]:
        for _ in range(4):
            clock.seconds += 20.0
            clock.updates += updates
            run.poll.answers[namespace, "pong"] = clock.answer()
            await run.settle(viewer, "pong")
            await kubelet.start("pong")
        return await status_of(viewer, namespace, "pong")

    await a_minute_later()
    before = {name: pod["metadata"]["uid"] for name, (pod,) in (await kubelet.pods("pong")).items()}
    set_quota(cluster, namespace, "pods", most=3, used=4)
    await viewer.delete(PODS, namespace, (await kubelet.pods("pong"))["actor-1"][0]["metadata"]["name"])
    await kubelet.finish_deleted("pong")
    status = await a_minute_later()
    status = await a_minute_later()
    assert condition(status, "Admitted") == ("False", "QuotaExceeded")
    assert "exceeded quota: few" in message(status, "Admitted")
    assert conditions(status, "Ready", "ActorsReady") == [("True", "Degraded"), ("False", "QuotaExceeded")]
    after = {name: pod["metadata"] for name, (pod,) in (await kubelet.pods("pong")).items()}
    assert {name: each["uid"] for name, each in after.items()} == {
        name: uid for name, uid in before.items() if name != "actor-1"
    }
    assert not any("deletionTimestamp" in each for each in after.values())

    set_quota(cluster, namespace, "pods", most=5, used=3)
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 5}}})
    status = await a_minute_later()
    assert status["actors"]["ready"] == 3, "growth goes as far as the quota"
    assert status["autoscaling"]["desiredReplicas"] == 5
    assert condition(status, "ScalingLimited") == ("True", "QuotaLimited")
    assert message(status, "ScalingLimited").startswith("5 wanted, 3 fit: ")
    set_quota(cluster, namespace, "pods", most=9, used=5)
    status = await a_minute_later()
    assert (status["actors"]["ready"], condition(status, "Admitted")[0]) == (5, "True")

    await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"actors": {"replicas": 60}}})
    await run.look(viewer)
    client.reset()
    await run.reconciler.reconcile((namespace, "pong"))
    assert client.calls["create", "pods"] == CHUNK, "sixty need not be asked for to know that the quota is full"
    assert len(await kubelet.pods("pong")) == 9


@pytest.fixture
def webhook_back(cluster: ControlPlane, namespace: str) -> Iterator[Callable[[], object]]:
    """Pods of learners are asked of a webhook that can't be called; the function takes it away."""
    learners = {"matchLabels": {"rljob.dev/role": "learner"}}
    with webhook_away(
        cluster, namespace, "https://127.0.0.1:9/", ["pods"], seconds=1, objectSelector=learners
    ) as remove:
        yield remove


async def test_a_webhook_that_fails_for_one_role_keeps_no_other_from_coming_up(
    webhook_back: Callable[[], object], viewer: Client, kubelet: Kubelet, clock: Clock, run: Run, namespace: str
) -> None:
    await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
    for _ in range(3):
        await run.settle(viewer, "pong")
        await kubelet.start("pong")
    await run.settle(viewer, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert "learner" not in await kubelet.pods("pong")
    assert (status["replay"]["ready"], status["restarts"]) == (1, {"counted": 0, "ignored": 0})
    clock.seconds += 100_000.0
    await run.settle(viewer, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Ready")[0] == "False", "it waits, it never fails"
    for kind in ("LearnerReady", "Ready"):
        assert "failed calling webhook" in message(status, kind)
    webhook_back()
    clock.seconds += 61.0
    await bring_up(run, viewer, kubelet, "pong")
    assert (await status_of(viewer, namespace, "pong"))["learner"]["ready"]
    await run.events.flush()
    assert (await viewer.list(EVENTS, namespace)).items
