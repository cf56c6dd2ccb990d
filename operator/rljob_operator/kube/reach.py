"""How a member's metrics port is reached: at its pod's address, or through the API server (pods/proxy) by a process that has
no way into the pods' network."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import aiohttp
from rljob.telemetry.server import TOKEN_HEADER

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden
from rljob_operator.polls.reach import LARGEST_BYTES, TIMEOUT_SECONDS, NoAnswer, good, not_in_time, unreadable

_WORDS_BYTES: Final = 64


class Way(StrEnum):
    """The ways there are."""

    PODS = "pods"
    PODS_PROXY = "pods-proxy"


_UNREACHED: Final = "error trying to reach service"
"""An API server's own message, as plain text, where it gets no answer out of a pod."""


def has_address(pod: Mapping[str, Any]) -> bool:
    """Whether the pod can be reached by now."""
    return bool((pod.get("status") or {}).get("podIP"))


def pod_url(pod: Mapping[str, Any], port: int) -> str:
    """The address of a port of a pod that has one."""
    address = pod["status"]["podIP"]
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


class PodNetwork:
    """At the pods' addresses: from inside the cluster, or a machine that routes to its pods."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    def url(self, pod: Mapping[str, Any], port: int) -> str:
        """Where a pod that has an address is asked."""
        return pod_url(pod, port)

    async def read(self, url: str, page: str, most_bytes: int = LARGEST_BYTES) -> bytes:
        """See `Reach`."""
        try:
            async with self._open().get(f"{url}/{page}", allow_redirects=False) as response:
                body = await response.content.read(most_bytes + 1)
                while not response.content.at_eof() and len(body) <= most_bytes:
                    body += await response.content.read(most_bytes + 1 - len(body))
                return good(response.status, body, page, most_bytes)
        except TimeoutError:
            raise not_in_time(self._timeout_seconds) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreadable(page, error) from None

    async def health(self, url: str) -> tuple[int, str]:
        """See `Reach`."""
        try:
            async with self._open().get(f"{url}/healthz", allow_redirects=False) as response:
                return response.status, (await response.content.read(_WORDS_BYTES)).decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from None

    async def send(self, url: str, page: str, document: Mapping[str, Any], token: str) -> bool:
        """See `Reach`."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with self._open().post(
                f"{url}/{page}", json=dict(document), headers=headers, allow_redirects=False
            ) as response:
                return response.status < 300
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return False

    async def close(self) -> None:
        """See `Reach`."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=1),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


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
            return 200, (await self._ask(url, "healthz"))[:_WORDS_BYTES].decode(errors="replace")
        except TimeoutError:
            raise not_in_time(self._timeout_seconds) from None
        except ApiError as problem:
            words = str(problem)
            # A refusal of the API server's own has a reason; a member's answers have none.
            if problem.reason or not problem.code or words.startswith(_UNREACHED):
                raise NoAnswer(words) from None
            return problem.code, words[:_WORDS_BYTES]

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
