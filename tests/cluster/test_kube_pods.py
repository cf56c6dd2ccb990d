"""The informer of pods against a real API server."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS
from rljob_operator.kube.watch.pods import Pods, is_gone

from tests.cluster.control_plane import ControlPlane, connected, meanwhile, until

JOB_UID = "8a3f27f5-6a7d-43f7-8f8e-51b2a5f10000"


def pod(namespace: str, name: str, *, controlled: bool = True) -> dict[str, Any]:
    """Without labels, which say nothing of whose it is."""
    about = {"name": "pong", "uid": JOB_UID, "controller": controlled}
    owner = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", **about}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "main", "image": "none"}], "hostname": name},
    }


class Followed:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.calls: Counter[str] = Counter()

    def tell(self, key: tuple[str, str], kind: str, pod: dict[str, Any]) -> None:
        assert key == (pod["metadata"]["namespace"], pod["metadata"]["ownerReferences"][0]["name"])
        self.events.append(f"{kind} {pod['metadata']['name']}")

    def count(self, verb: str, resource: str, code: str, seconds: float) -> None:
        self.calls[f"{verb} {code}"] += 1


@asynccontextmanager
async def following(
    cluster: ControlPlane, namespaces: Sequence[str] | None, **options: Any
) -> AsyncIterator[tuple[Pods, Followed]]:
    """The informer on a client of its own, and what it tells."""
    followed = Followed()
    async with connected(cluster, observe=followed.count) as its_own:
        pods = Pods(its_own, namespaces, followed.tell, **options)
        async with meanwhile(pods.run()):
            await asyncio.wait_for(pods.wait_synced(), 20.0)
            yield pods, followed


def names(pods: Pods, namespace: str) -> set[str]:
    """The names of those that are there; one that is gone is kept until its end has been dealt with."""
    return {pod["metadata"]["name"] for pod in pods.of(namespace, JOB_UID) if not is_gone(pod)}


async def test_what_happens_to_pods_is_told(cluster: ControlPlane, viewer: Client, namespace: str) -> None:
    async with following(cluster, None) as (pods, followed):
        await viewer.create(PODS, pod(namespace, "a"))
        await viewer.create(PODS, pod(namespace, "stranger", controlled=False))
        await until("the pod in the cache", lambda: names(pods, namespace) == {"a"})
        change = {"status": {"phase": "Running", "podIP": "10.1.2.3"}}
        await viewer.patch(PODS, namespace, "a", change, subresource="status")
        await until("its address", lambda: pods.of(namespace, JOB_UID)[0]["status"].get("podIP") == "10.1.2.3")
        await viewer.delete(PODS, namespace, "a", grace_seconds=0)
        await until("its end", lambda: names(pods, namespace) == set())
        (gone,) = pods.of(namespace, JOB_UID)
        pods.settle(gone)
        assert not pods.of(namespace, JOB_UID)
        told = [
            event for event in followed.events if event.endswith(" a")
        ]  # other tests leave pods in other namespaces
        assert (told[0], told[-1]) == ("ADDED a", "DELETED a")
        assert set(told[1:-1]) == {"MODIFIED a"}
        assert not [event for event in followed.events if event.endswith(" stranger")]


async def test_only_the_given_namespaces_are_looked_at(
    cluster: ControlPlane, viewer: Client, namespace: str, other_namespace: str
) -> None:
    for place in (namespace, other_namespace, "default"):
        await viewer.create(PODS, pod(place, f"in-{place}"))
    async with following(cluster, [namespace, other_namespace]) as (pods, _):
        assert len(pods) == 2
        assert names(pods, "default") == set()
        await viewer.delete(PODS, "default", "in-default", grace_seconds=0)


async def test_watches_that_end_in_time_are_gone_on_with_and_lose_nothing(
    cluster: ControlPlane, viewer: Client, namespace: str
) -> None:
    async with following(cluster, [namespace], watch_seconds=2.0) as (pods, followed):
        for number in range(30):
            await viewer.create(PODS, pod(namespace, f"p-{number}"))
            await asyncio.sleep(0.2)
        await until("all pods", lambda: len(pods) == 30)
        assert (followed.events, followed.calls["list 200"]) == ([f"ADDED p-{number}" for number in range(30)], 1)
        assert followed.calls["watch 200"] >= 2
