"""Kubelets of a real API server that has no nodes, played by the test."""

import asyncio
from collections.abc import Container, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, NotFound
from rljob_operator.kube.apiserver.resources import PODS, Object
from rljob_operator.kube.apiserver.transport import Call
from rljob_operator.kube.render import names


def stamped(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kubelet:
    """Says of pods what a kubelet would."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def pods(self, job: str) -> dict[str, list[Object]]:
        """The job's pods by member."""
        selector = f"{names.JOB_LABEL}={job}"
        found: dict[str, list[Object]] = {}
        for pod in (await self._client.list(PODS, self._namespace, label_selector=selector)).items:
            found.setdefault(pod["metadata"]["labels"][names.MEMBER_LABEL], []).append(pod)
        return found

    async def play(self, jobs: Sequence[str]) -> None:
        """For ever: start what is made, and let go what is deleted."""
        while True:
            for name in jobs:
                with suppress(ApiError):  # another client has changed it, or the server is away
                    await self.start(name)
                    await self.finish_deleted(name)
            await asyncio.sleep(0.1)

    async def pod(self, job: str, member: str) -> Object:
        """The member's pod, of which there is one."""
        (found,) = (await self.pods(job))[member]
        return found

    async def start(self, job: str, *members: str) -> None:
        """Bind and run all pods of the job that have not been started, or those of ``members``."""
        for member, pods in (await self.pods(job)).items():
            for pod in pods:
                fresh = (
                    not (pod.get("status") or {}).get("containerStatuses")
                    and "deletionTimestamp" not in pod["metadata"]
                )
                if fresh and (not members or member in members):
                    await self._run(pod)

    async def bind(self, pod: Object) -> None:
        """Give the pod a node, on which nothing happens."""
        about = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": about["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        }
        path = f"/api/v1/namespaces/{self._namespace}/pods/{about['name']}/binding"
        await self._client._transport.ask(Call("create", "POST", path, "bindings", {}, binding), None)

    async def _run(self, pod: Object) -> None:
        if not pod["spec"].get("nodeName"):  # it has one where the answer to an earlier look was lost
            await self.bind(pod)
        state = {"running": {"startedAt": stamped(datetime.now(UTC).timestamp() - 60)}}
        await self._say(
            pod,
            {
                "phase": "Running",
                "podIP": "10.1.0.7",
                "podIPs": [{"ip": "10.1.0.7"}],
                "containerStatuses": [self._worker(state)],
            },
        )

    async def end(self, pod: Object, code: int = 1, reason: str = "Error", message: str = "", **status: Any) -> None:
        now = datetime.now(UTC).timestamp()
        terminated = {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "startedAt": stamped(now - 60),
            "finishedAt": stamped(now),
        }
        phase = "Succeeded" if code == 0 else "Failed"
        await self._say(
            pod, {"phase": phase, "containerStatuses": [self._worker({"terminated": terminated})], **status}
        )

    async def finish_deleted(self, job: str, but: Container[str] = ()) -> None:
        """End every pod that is being deleted, in good order, and let it go where nothing keeps it; the members ``but`` take
        longer."""
        for pod in [each for name, pods in (await self.pods(job)).items() if name not in but for each in pods]:
            if "deletionTimestamp" not in pod["metadata"]:
                continue
            if (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded"):
                await self.end(pod, 143)
            try:
                await self._client.delete(PODS, self._namespace, pod["metadata"]["name"], grace_seconds=0)
            except NotFound:
                continue

    @staticmethod
    def _worker(state: Object) -> Object:
        running = "running" in state
        about = {"image": "rl:1", "imageID": "", "restartCount": 0}
        return {"name": names.WORKER, "ready": running, "started": running, "state": state, **about}

    async def _say(self, pod: Object, status: Object) -> None:
        await self._client.patch(
            PODS, self._namespace, pod["metadata"]["name"], {"status": status}, subresource="status"
        )
