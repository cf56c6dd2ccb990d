"""Our client and answers that a real API server can't be made to give on demand: see `fake_api_server`."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rljob_operator.kube.apiserver import access
from rljob_operator.kube.apiserver.access import NoAccess, load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    LacksRight,
    NamespaceTerminating,
    NotFound,
    PodSecurityViolated,
    QuotaExceeded,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    error_of,
)
from rljob_operator.kube.apiserver.resources import PODS

from tests.unit.operator.kube.fake_api_server import listed, never, refuses, says, served, streams

POD = {"metadata": {"name": "one", "namespace": "default", "resourceVersion": "7"}}


def event(kind: str, version: str = "7") -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": "one", "resourceVersion": version}}}


async def watched(client: Client, **options: Any) -> list[str]:
    seen: list[str] = []
    try:
        async for each in client.watch(PODS, None, resource_version="1", **options):
            seen += [f"{each.kind} {each.resource_version}"]
    except ApiError as problem:
        seen.append(type(problem).__name__)
    return seen


async def test_a_server_that_asks_for_patience_says_for_how_long() -> None:
    async with served(refuses(429, "TooManyRequests", "later", {"Retry-After": "3"})) as (server, client):
        with pytest.raises(TooManyRequests, match="later") as caught:
            await client.get(PODS, "default", "one")
        assert caught.value.retry_after_seconds == 3.0
        assert len(server.asked) == 1, "nothing is tried again behind the caller's back"


@pytest.mark.parametrize(
    "answer",
    [
        refuses(500, "InternalError", "etcd is gone"),
        says(502, "<html>"),
        says(200, []),
        streams(b'{"metadata": ', cut=True),
    ],
    ids=["500", "a proxy's", "no object", "it breaks off"],
)
async def test_a_server_out_of_order_is_unavailable(answer: Any) -> None:
    async with served(answer) as (_, client):
        with pytest.raises(Unavailable):
            await client.get(PODS, "default", "one")


async def test_an_answer_that_trickles_is_bounded_as_a_whole() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)

    async with served(drip, timeout_seconds=0.5) as (_, client):
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"within 0\.5 s"):
            await client.get(PODS, "default", "one")
        assert time.monotonic() - began < 2.0


async def test_a_list_that_is_forgotten_between_two_pages_is_gone() -> None:
    async with served(listed("5", POD, more="next"), refuses(410, "Expired")) as (server, client):
        with pytest.raises(Gone):
            await client.list(PODS, None)
        assert server.asked[1].query["continue"] == "next"


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (streams(event("ADDED"), event("BOOKMARK", "9")), ["ADDED 7", "BOOKMARK 9"]),
        (streams(event("ADDED"), event("DELETED", "8"), cut=True), ["ADDED 7", "DELETED 8", "Unavailable"]),
        (streams(event("ADDED"), b'{"type": "MODI', cut=True), ["ADDED 7", "Unavailable"]),
        (streams(b'{"type": "ADDED", "object": {"metadata": {"na', b'me": "x", "resourceVersion": "3"}}}\n'), ["ADDED 3"]),
        (streams({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}), ["Gone"]),
        (streams({"type": "ERROR", "object": {"code": 500}}), ["Unavailable"]),
        (streams({"type": "ERROR", "object": None}), ["Unavailable"]),
        (streams({"type": "ADDED"}), ["Unavailable"]),
        (streams(b"<html>\n"), ["Unavailable"]),
        (streams(event("ADDED"), hang=True), ["ADDED 7", "Unavailable"]),
        (refuses(410, "Expired"), ["Gone"]),
        (refuses(429, "TooManyRequests"), ["TooManyRequests"]),
        (never(), ["Unavailable"]),
    ],
    ids=[
        "ends", "cut", "cut within a line", "a line in two pieces", "forgotten", "an error", "an error without a word",
        "no object", "no JSON", "silent", "refused", "busy", "no answer",
    ],
)  # fmt: skip
async def test_a_watch_ends_in_one_of_these_ways(answer: Any, seen: list[str]) -> None:
    async with served(answer, timeout_seconds=1.0) as (_, client):
        assert await watched(client, silence_seconds=0.5) == seen


async def test_a_watch_left_early_lets_go_of_its_connection() -> None:
    async with served(streams(event("ADDED"), hang=True)) as (_, client):
        watch = client.watch(PODS, None, resource_version="1")
        assert (await anext(watch)).kind == "ADDED"
        await watch.aclose()
        assert not client._transport._api.rest_client.pool_manager.connector._acquired


async def test_a_refused_login_is_read_anew_and_tried_once_more(tmp_path: Path) -> None:
    """All calls under way are refused at once when a token ends; the file is read once for all of them."""
    used: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        used.append(request.headers.get("Authorization", ""))
        return await (says(200, POD) if used[-1] == "Bearer new" else refuses(401, "Unauthorized"))(request)

    async with served(answer) as (server, _), logged_in(tmp_path, server.url, "old") as client:
        (tmp_path / "token").write_text("new")
        await asyncio.gather(*(client.get(PODS, "default", "one") for _ in range(5)))
        assert sorted(used) == ["Bearer new"] * 5 + ["Bearer old"] * 5
        (tmp_path / "token").unlink()
        server.answers = [refuses(401, "Unauthorized", "no more")]
        with pytest.raises(Unauthorized, match="no more"):
            await client.get(PODS, "default", "one")


@asynccontextmanager
async def logged_in(folder: Path, server: str, token: str) -> AsyncIterator[Client]:
    """A client that logs in as a kubeconfig says, with its token in a file."""
    client = Client(await load_access(str(kubeconfig(folder, server, token))))
    try:
        yield client
    finally:
        await client.close()


def kubeconfig(folder: Path, server: str, token: str) -> Path:
    """A kubeconfig with its token in a file beside it."""
    (folder / "token").write_text(token)
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    }
    (folder / "config").write_text(json.dumps(config))
    return folder / "config"


@pytest.mark.parametrize("broken", ["{", "{}", json.dumps({"current-context": "x", "contexts": [], "clusters": []})])
async def test_a_kubeconfig_that_can_not_be_used_is_named(tmp_path: Path, broken: str) -> None:
    (tmp_path / "config").write_text(broken)
    with pytest.raises(NoAccess):
        await load_access(str(tmp_path / "config"))
    with pytest.raises(NoAccess, match="there is no kubeconfig at"):
        await load_access(str(tmp_path / "absent"))


async def test_in_a_pod_the_service_account_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("token", "first"), ("ca.crt", "certificate"), ("namespace", "team\n")):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    proxy = {"HTTPS_PROXY": "http://proxy:3128"}  # which reaches what is outside
    for name, value in {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", **proxy}.items():
        monkeypatch.setenv(name, value)
    loaded = await load_access()
    found = loaded.configuration
    assert (found.host, found.proxy, loaded.namespace) == ("https://10.0.0.1:443", None, "team")
    assert (found.ssl_ca_cert, await loaded.token()) == (str(tmp_path / "ca.crt"), "first")
    (tmp_path / "token").write_text("second")
    await loaded.renew()
    assert await loaded.token() == "second"
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(NoAccess):
        await load_access()


def test_the_namespace_is_the_contexts(tmp_path: Path) -> None:
    assert asyncio.run(load_access(str(kubeconfig(tmp_path, "http://127.0.0.1:1", "")))).namespace == "team"


async def test_calls_without_an_answer_are_counted_by_why() -> None:
    codes: list[str] = []
    observe = lambda verb, resource, code, seconds: codes.append(f"{verb} {resource} {code}")  # noqa: E731
    async with served(never(), observe=observe, timeout_seconds=0.2) as (_, client):
        with pytest.raises(Unavailable):
            await client.get(PODS, "default", "one")
    with pytest.raises(Unavailable):
        await client.get(PODS, "default", "one")
    asking = asyncio.create_task(client.get(PODS, "default", "one"))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await client.close()
    assert codes == ["get pods timeout", "get pods connection"]


def test_the_environments_proxy_is_taken_where_the_kubeconfig_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "10.0.0.9,localhost")

    def proxy_to(server: str) -> str | None:
        return asyncio.run(load_access(str(kubeconfig(tmp_path, server, "")))).configuration.proxy

    assert proxy_to("https://cluster.example:6443") == "http://proxy.example:3128"
    assert proxy_to("https://10.0.0.9:6443") is None
    assert proxy_to("http://cluster.example:8080") is None


async def test_a_password_of_the_users_netrc_is_not_sent_to_an_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that has a token could not even be sent with both."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password something\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with served(says(200, POD)) as (server, _), logged_in(tmp_path, server.url, "mine") as client:
        await client.get(PODS, "default", "one")
        assert server.asked[0].headers["Authorization"] == "Bearer mine"


QUOTA = 'pods "a" is forbidden: exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2'
UNCOUNTED = 'pods "a" is forbidden: status unknown for quota: team, resources: pods'
NO_LIMITS = 'pods "a" is forbidden: failed quota: team: must specify limits.cpu for: main'
SECURITY = 'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
GOING = {"causes": [{"reason": "NamespaceTerminating", "message": "namespace a is being terminated"}]}

CASES: list[tuple[int, dict[str, Any], type[ApiError]]] = [
    (400, {"reason": "BadRequest"}, Invalid),
    (422, {"reason": "Invalid"}, Invalid),
    (413, {"reason": "RequestEntityTooLarge"}, Invalid),
    (401, {"reason": "Unauthorized"}, Unauthorized),
    (403, {"reason": "Forbidden", "message": 'pods is forbidden: User "a" cannot get resource "pods"'}, LacksRight),
    (403, {"reason": "Forbidden", "message": QUOTA}, QuotaExceeded),
    (403, {"reason": "Forbidden", "message": UNCOUNTED}, QuotaExceeded),
    (403, {"reason": "Forbidden", "message": NO_LIMITS}, Forbidden),
    (403, {"reason": "Forbidden", "message": SECURITY}, PodSecurityViolated),
    (403, {"reason": "Forbidden", "details": GOING}, NamespaceTerminating),
    (404, {"reason": "NotFound"}, NotFound),
    (405, {"reason": "MethodNotAllowed"}, ApiError),
    (409, {"reason": "Conflict"}, Conflict),
    (409, {"reason": "AlreadyExists"}, AlreadyExists),
    (410, {"reason": "Expired"}, Gone),
    (429, {"reason": "TooManyRequests"}, TooManyRequests),
    (500, {"reason": "InternalError"}, Unavailable),
    (503, {"reason": "ServiceUnavailable"}, Unavailable),
    (504, {"reason": "Timeout"}, Unavailable),
    (502, {}, Unavailable),
]


@pytest.mark.parametrize(("code", "status", "kind"), CASES)
def test_each_answer_has_its_type(code: int, status: dict[str, Any], kind: type[ApiError]) -> None:
    error = error_of(code, status, None)
    said = status.get("message", status.get("reason", f"HTTP {code}"))
    assert (type(error), error.code, str(error)) == (kind, code, said)


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("3", {}, 3.0),
        (None, {"retryAfterSeconds": 2}, 2.0),
        ("1", {"retryAfterSeconds": 5}, 1.0),
        (None, {}, None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", {}, None),
        ("-1", {}, None),
        ("inf", {}, None),
        ("nan", {}, None),
    ],
)
def test_how_long_to_wait_is_taken_from_the_header_or_the_body(header: Any, details: Any, seconds: Any) -> None:
    assert error_of(429, {"details": details}, header).retry_after_seconds == seconds


@pytest.mark.parametrize("details", [None, [], "x", {"causes": None}, {"causes": ["x"]}])
def test_a_body_that_is_no_status_is_no_fault_of_ours(details: Any) -> None:
    assert type(error_of(403, {"details": details, "message": None, "reason": None}, None)) is Forbidden


@pytest.mark.parametrize(
    ("ahead", "counted"), [(300.0, 300.0), (-300.0, -300.0), (3.0, 0.0)], ids=["ahead", "behind", "as good as right"]
)
async def test_the_time_that_counts_is_the_api_servers(ahead: float, counted: float) -> None:
    """Pods have their times from it: by a clock that is five minutes ahead each pod that leaves would be on a lost node."""
    date = {"Date": formatdate(time.time() - ahead, usegmt=True)}
    async with served(says(200, POD, date), says(200, POD, {"Date": "no date"})) as (_, client):
        for _ in range(2):
            await client.get(PODS, "default", "one")
            assert abs(time.time() - client.now() - counted) < 2.0
