"""Which pods' logs are meant, and reading them, once and again and again."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web
from rljob_operator.kube.view import job_view
from rljob_operator.kube.view.job_view import TooMany, chosen, follow, show_last

from tests.unit.operator.kube.fake_api_server import refuses, served
from tests.unit.operator.kube.sample_pods import container, running_pod

WHEN = "2026-11-23T11:00:00Z"


def pod(member: str, life: int = 1, state: str = "running") -> dict[str, Any]:
    found = running_pod(life)
    about = found["metadata"]
    found["spec"]["hostname"] = member
    found["metadata"] = {
        **about,
        "name": f"pong-{member}-life{life}",
        "uid": f"{member}-{life}",
        "creationTimestamp": f"2026-11-23T11:00:0{life}Z",
    }
    now = {"running": {"startedAt": WHEN}} if state == "running" else {state: {"exitCode": 1, "reason": "x"}}
    found["status"]["containerStatuses"] = [container("worker", WHEN, state=now)]
    return found


ALL = [
    pod("learner"),
    pod("actor-1", 1, "terminated"),
    pod("actor-1", 2),
    pod("actor-0"),
    pod("replay-0", 1, "waiting"),
]


def named(pods: Mapping[str, Any]) -> dict[str, str]:
    return {member: each["metadata"]["name"] for member, each in pods.items()}


def test_which_pods_are_meant() -> None:
    assert named(chosen(ALL, None)) == {
        "actor-0": "pong-actor-0-life1",
        "actor-1": "pong-actor-1-life2",
        "learner": "pong-learner-life1",
        "replay-0": "pong-replay-0-life1",
    }
    assert (set(chosen(ALL, "actor")), set(chosen(ALL, "actor-0"))) == ({"actor-0", "actor-1"}, {"actor-0"})
    assert chosen(ALL, "act") == {}


class Shown:
    """What was shown: the lines of each member."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.names: Sequence[str] = ()

    def __call__(self, names: Sequence[str], lines: Iterable[tuple[str, str]]) -> None:
        self.names = names
        for name, line in lines:
            self.lines.setdefault(name, []).append(line)


async def test_the_last_lines_of_each() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.query['tailLines']} of {request.path.split('/')[-2]}\n\u00fc\n")

    async with served(answer) as (_, client):
        shown = Shown()
        await show_last(client, chosen(ALL, "actor"), 3, shown)
        assert shown.lines == {
            "actor-0": ["3 of pong-actor-0-life1", "\u00fc"],
            "actor-1": ["3 of pong-actor-1-life2", "\u00fc"],
        }


async def test_a_pod_that_has_gone_or_is_being_made_has_said_nothing() -> None:
    async with served(refuses(404, "NotFound"), refuses(400, "BadRequest")) as (server, client):
        shown = Shown()
        await show_last(client, chosen(ALL, None), 3, shown)
        assert (shown.lines, len(server.asked)) == ({}, 3), "a container that waits is not even asked"
        assert len(shown.names) == 4


async def test_following_asks_for_what_is_new_and_takes_in_new_pods() -> None:
    """The API server cuts what it is asked for to whole seconds, so a line may come twice."""
    logs = {f"pong-{member}-life1": [f"{member} {number}" for number in range(9)] for member in ("learner", "actor-0")}
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.path.split("/")[-2]
        asked.append(name)
        if len(asked) == 3:
            return await refuses(503, "ServiceUnavailable")(request)
        lines = [f"2026-11-23T11:00:00.{number:09}Z {line}\n" for number, line in enumerate(logs[name])]
        said = "".join(lines[-int(request.query.get("tailLines", 3)) :])
        return web.Response(text=f"{said}unable to retrieve container logs\n")

    async def looks() -> AsyncIterator[Mapping[str, Any]]:
        yield chosen([pod("learner")], None)
        logs["pong-learner-life1"] += ["new"]
        for _ in range(3):
            yield chosen([pod("learner"), pod("actor-0", 1, "terminated")], None)

    shown = Shown()
    async with served(answer) as (_, client):
        await follow(looks, client, 2, shown)
    assert shown.lines == {"learner": ["learner 7", "learner 8", "new"], "actor-0": ["actor-0 7", "actor-0 8"]}
    assert (asked[-1], set(shown.names)) == ("pong-learner-life1", {"learner", "actor-0"}), (
        "what has ended is read once"
    )


async def test_too_many_logs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_view, "MOST", 2)
    async with served(refuses(404)) as (_, client):
        with pytest.raises(TooMany, match="4 logs at once; at most 2"):
            await show_last(client, chosen(ALL, None), 3, Shown())
