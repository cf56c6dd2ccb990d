"""How a member's metrics port is reached: at its pod's address, or through the API server (pods/proxy) by a process that has
no way into the pods' network."""

from collections.abc import Mapping
from typing import Any, Final

from rljob.telemetry.server import TOKEN_HEADER

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden
from rljob_operator.polls.reach import LARGEST_BYTES, TIMEOUT_SECONDS, WORDS_BYTES, Direct, NoAnswer, good, not_in_time

_UNREACHED: Final = "error trying to reach service"
"""An API server's own message, as plain text, where it gets no answer out of a pod."""


def has_address(pod: Mapping[str, Any]) -> bool:
    """Whether the pod can be reached by now."""
    return bool((pod.get("status") or {}).get("podIP"))


class PodNetwork(Direct):
    """At the pods' addresses: from inside the cluster, or a machine that routes to its pods."""

    def url(self, pod: Mapping[str, Any], port: int) -> str:
        """Where a pod that has an address is asked."""
        address = pod["status"]["podIP"]
        return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


class PodsProxy:
    """Through the API server, from wherever that one is reached. It takes the right to get (and, for requests, to create)
    pods/proxy; where NetworkPolicies are enforced, they must let the API server in."""

    def __init__(self, client: Client, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._client, self._timeout_seconds = client, timeout_seconds

    def url(self, pod: Mapping[str, Any], port: int) -> str:
        """Where a pod that has an address is asked."""
        return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{port}"

    async def read(self, url: str, page: str, most_bytes: int = LARGEST_BYTES) -> bytes:
        """See `Reach`."""
        try:
            return good(200, await self._ask(url, page, most_bytes=most_bytes), page, most_bytes)
        except Forbidden as problem:
            namespace = url.partition("/")[0]
            raise NoAnswer(f"the right to get pods/proxy in namespace {namespace} is missing: {problem}") from None
        except TimeoutError:
            raise not_in_time(self._timeout_seconds) from None
        except ApiError as problem:
            raise NoAnswer(f"its {page} can't be read through the API server: {problem}") from None

    async def health(self, url: str) -> tuple[int, str]:
        """See `Reach`."""
        try:
            return 200, (await self._ask(url, "healthz"))[:WORDS_BYTES].decode(errors="replace")
        except TimeoutError:
            raise not_in_time(self._timeout_seconds) from None
        except ApiError as problem:
            words = str(problem)
            # A refusal of the API server's own has a reason; a member's answers have none.
            if problem.reason or not problem.code or words.startswith(_UNREACHED):
                raise NoAnswer(words) from None
            return problem.code, words[:WORDS_BYTES]

    async def send(self, url: str, page: str, document: Mapping[str, Any], token: str) -> bool:
        """See `Reach`."""
        try:
            await self._ask(url, page, document, {TOKEN_HEADER: token})
        except (ApiError, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        """See `Reach`: the client is its maker's."""

    async def _ask(
        self,
        url: str,
        page: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        most_bytes: int = LARGEST_BYTES,
    ) -> bytes:
        namespace, pod, port = url.split("/")
        return await self._client.through_pod(
            namespace,
            pod,
            int(port),
            page,
            body=body,
            headers=headers,
            timeout_seconds=self._timeout_seconds,
            longest_bytes=most_bytes,
        )
