"""The one way to the API server: its verbs, raw JSON in and out, and every refusal a type (`errors.py`).

An object is the `dict` that the server sent: no generated models.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import StreamReader

from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.errors import Conflict, Invalid
from rljob_operator.kube.apiserver.resources import PODS, Object, Resource
from rljob_operator.kube.apiserver.transport import JSON, Call, CallObserver, Transport, WatchEvent, watch_events

FIELD_MANAGER = "rljob-operator"
TIMEOUT_SECONDS = 36.0
"""An API server gives up a write after 34 s at the latest, and names then the webhook that it has waited for, 30 s at most."""
WATCH_SECONDS = 75.0
"""A server ends a watch after this, and the next watch goes on from there. It sends a bookmark about once a minute, but none
where nothing of the kind has changed since the watch began: a longer watch could not be told from a dead one."""
SILENCE_SECONDS = 90.0
"""A watch without an event for longer than this is dead."""
PAGE_LIMIT = 500
AT_ONCE = 16
"""Calls under way at the same time, watches apart. More would only wait inside the API server and delay other calls, such as the
renewal of our own Lease; a server that answers within 5 ms takes 3,000 a second this way."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Page(NamedTuple):
    """A part of a list. All pages of one list have the same resource version, which a watch can go on from."""

    items: list[Object]
    resource_version: str


class Client:
    """Calls to one API server, made by one event loop.

    Args:
        access: where it is and how to log in.
        observe: told of every call when it has ended.
        guard: called before every call that writes; what it raises goes to the caller, and nothing is written. This is where
            a process that is no longer the leader is stopped.
        timeout_seconds: for a call and its whole answer, from when it is sent, where the caller does not say otherwise.
        field_manager: who the server is to note as the author of what is written.

    Every method raises a `kube.errors.ApiError` where it has no result.
    """

    def __init__(
        self,
        access: Access,
        *,
        observe: CallObserver | None = None,
        guard: Callable[[], None] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        field_manager: str = FIELD_MANAGER,
    ) -> None:
        self._transport = Transport(access, observe, timeout_seconds)
        self._guard, self._field_manager = guard, field_manager
        self._slots = asyncio.Semaphore(AT_ONCE)

    def now(self) -> float:
        """Unix seconds by the API server's clock, which the times of pods are by."""
        return time.time() - self._transport.ahead_seconds

    async def close(self) -> None:
        """Give up all connections; watches under way end with `Unavailable`."""
        await self._transport.close()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """One object as it is now."""
        return await self._ask(Call("get", "GET", resource.path(namespace, name), resource.plural, {}))

    async def pages(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        label_selector: str = "",
        limit: int = PAGE_LIMIT,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Page]:
        """All objects of a namespace (None: of all), page by page; the timeout counts for each.

        Raises `Gone` where the server forgets the list between two pages: begin anew.
        """
        query: dict[str, str | int] = {"limit": limit, "labelSelector": label_selector}
        while True:
            accept = _METADATA_ONLY if metadata_only else JSON
            answer = await self._ask(
                Call("list", "GET", resource.path(namespace), resource.plural, dict(query), accept=accept)
            )
            about = answer.get("metadata") or {}
            yield Page(answer.get("items") or [], str(about.get("resourceVersion", "")))
            if not about.get("continue"):
                return
            query["continue"] = about["continue"]

    async def list(
        self, resource: Resource, namespace: str | None, *, label_selector: str = "", metadata_only: bool = False
    ) -> Page:
        """All objects of a namespace (None: of all) at once."""
        found, version = list[Object](), ""
        async for page in self.pages(resource, namespace, label_selector=label_selector, metadata_only=metadata_only):
            found += page.items
            version = page.resource_version
        return Page(found, version)

    async def create(
        self,
        resource: Resource,
        document: Object,
        *,
        dry_run: bool = False,
        timeout_seconds: float | None = None,
    ) -> Object:
        """Create the object and return it as stored. A dry run is checked and filled in, but not stored. Raises `AlreadyExists`
        where the name is taken, and `Invalid` for a field that the server does not know: it would leave it out in silence."""
        path = resource.path(document["metadata"]["namespace"])
        dry = {"dryRun": "All"} if dry_run else {}
        query = {"fieldManager": self._field_manager, "fieldValidation": "Strict", **dry}
        return await self._ask(Call("create", "POST", path, resource.plural, query, document), timeout_seconds)

    async def apply(self, resource: Resource, document: Object, *, uid: str | None = None) -> Object:
        """Server-side apply under our field manager, taking over fields that others have set.

        It would create what is not there: with ``uid`` it only ever changes that very object. Raises `Conflict` where the name
        belongs to another one, or to none.
        """
        about = document["metadata"]
        if uid is not None:
            document = {**document, "metadata": {**about, "uid": uid}}
        path = resource.path(about["namespace"], about["name"])
        query = {"fieldManager": self._field_manager, "force": "true"}
        call = Call("apply", "PATCH", path, resource.plural, query, document, "application/apply-patch+yaml")
        try:
            return await self._ask(call)
        except Invalid as problem:
            # An object with another uid has the name where that is the cause.
            causes = [each for each in problem.details.get("causes") or () if isinstance(each, dict)]
            if uid is None or not any(each.get("field") == "metadata.uid" for each in causes):
                raise
            raise Conflict(str(problem), code=problem.code, reason=problem.reason, details=problem.details) from problem

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Mapping[str, Any],
        *,
        resource_version: str | None = None,
        subresource: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Object:
        """Change parts of an object, by a JSON merge patch.

        With ``resource_version`` it is changed only as it was read. Raises `Conflict` where it has changed since.
        """
        body = dict(change)
        if resource_version is not None:
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": resource_version}
        path = resource.path(namespace, name, subresource)
        query = {"fieldManager": self._field_manager}
        counted_as = f"{resource.plural}/{subresource}" if subresource else resource.plural
        call = Call("patch", "PATCH", path, counted_as, query, body, "application/merge-patch+json")
        return await self._ask(call, timeout_seconds)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
    ) -> None:
        """Ask for the object's end; it goes when its finalizers and its grace period let it.

        With ``uid`` only that very object. Raises `NotFound` where it is gone, `Conflict` where the name is another one's.
        ``propagation``: Background, Foreground or Orphan; None is the server's own choice.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid} if uid is not None else None,
            "gracePeriodSeconds": grace_seconds,
            "propagationPolicy": propagation,
        }
        body = {field: value for field, value in options.items() if value is not None}
        await self._ask(Call("delete", "DELETE", resource.path(namespace, name), resource.plural, {}, body))

    async def watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_seconds: float = WATCH_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> AsyncGenerator[WatchEvent]:
        """What happens after ``resource_version``: ADDED, MODIFIED, DELETED and BOOKMARK, each with its object.

        It ends by itself after ``timeout_seconds``, and the next one goes on from the last resource version seen.

        Raises:
            Gone: the server no longer knows what happened since then; list anew.
            Unavailable: the connection broke, or nothing was heard for ``silence_seconds``.
        """
        query: dict[str, str | int] = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": max(1, int(timeout_seconds)),
            "labelSelector": label_selector,
        }
        call = Call("watch", "GET", resource.path(namespace), resource.plural, query)
        async with (
            self._transport.stream(call, silence_seconds) as content,
            aclosing(watch_events(content)) as events,
        ):
            async for event in events:
                yield event

    @asynccontextmanager
    async def log(
        self, namespace: str, pod: str, query: Mapping[str, str | int], *, silence_seconds: float | None = None
    ) -> AsyncIterator[StreamReader]:
        """The log of a container, as its bytes arrive; ``query`` names the container, and where to begin."""
        call = Call("get", "GET", PODS.path(namespace, pod, "log"), "pods/log", query, accept="*/*")
        async with self._transport.stream(call, silence_seconds) as content:
            yield content

    async def through_pod(
        self,
        namespace: str,
        pod: str,
        port: int,
        page: str,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float,
        longest_bytes: int,
    ) -> bytes:
        """What a server in a pod answers when the API server passes a request on to it (pods/proxy): GET, or POST with ``body``.

        One byte more than ``longest_bytes`` is read of a longer answer. The API server keeps an Authorization header to itself. A
        refusal may be its own or the pod's. No object of the API server is written, so nothing is asked of the guard.
        """
        path = f"{PODS.path(namespace, f'{pod}:{port}', 'proxy')}/{page}"
        verb, method = ("get", "GET") if body is None else ("create", "POST")
        call = Call(verb, method, path, "pods/proxy", {}, None if body is None else dict(body), headers=headers or {})
        async with self._transport.stream(call, timeout_seconds) as content, asyncio.timeout(timeout_seconds):
            found = b""
            while not content.at_eof() and len(found) <= longest_bytes:
                found += await content.read(longest_bytes + 1 - len(found))
        return found

    async def execute(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        take: Callable[[bytes], bool],
        timeout_seconds: float,
    ) -> str:
        """Run a command in a container; empty, or why it failed, as it reports that. ``take`` is given what it prints and answers
        whether that was all; the command is then sent a line. No object of the API server is written, so nothing is asked of the
        guard."""
        query = [
            ("container", container),
            ("stdin", "true"),
            ("stdout", "true"),
            ("stderr", "true"),
            *(("command", word) for word in command),
        ]
        return await self._transport.execute(PODS.path(namespace, pod, "exec"), query, take, timeout_seconds)

    async def may(self, verb: str, resource: Resource, namespace: str | None, subresource: str = "") -> bool:
        """Whether the user that is logged in has that right in a namespace (None: in all). Every user may ask about itself."""
        document = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "verb": verb, "group": resource.group, "resource": resource.plural, "subresource": subresource,
                    "namespace": namespace or "",
                }
            },
        }  # fmt: skip
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await self._transport.ask(Call("create", "POST", path, "selfsubjectaccessreviews", {}, document))
        return bool((answer.get("status") or {}).get("allowed"))

    async def _ask(self, call: Call, timeout_seconds: float | None = None) -> Object:
        async with self._slots:
            if self._guard is not None and call.method != "GET":
                self._guard()
            return await self._transport.ask(call, timeout_seconds)


async def concurrently(*calls: Awaitable[object]) -> None:
    """Wait until every one has ended; a failure does not stop the others. Raises the first failure, in their order."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    problems = [result for result in results if isinstance(result, BaseException)]
    if problems:
        raise problems[0]
