"""The logs of a job's pods, as the API server hands them out: the last lines of each, and what comes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Final

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Invalid, NotFound, Unavailable
from rljob_operator.kube.job.members import Pod, current
from rljob_operator.kube.render import names
from rljob_operator.kube.view.job_view import runs

MOST: Final = 100
"""Logs that are read at once: each is a connection of its own."""
LOOK_SECONDS: Final = 2.0
"""Time between two checks for new pods."""
LONGEST_LINE_BYTES: Final = 1 << 20

Show = Callable[[Sequence[str], Iterable[tuple[str, str]]], None]


class TooMany(Exception):
    """There are more logs than are read at once; ``str()`` says how many."""


def chosen(pods: Iterable[Pod], who: str | None) -> dict[str, Pod]:
    """Member -> its present pod, of all or of one role or member."""
    return {name: pod for name, pod in sorted(current(pods).items()) if who in (None, name, name.partition("-")[0])}


async def show_last(client: Client, pods: Mapping[str, Pod], tail: int, show: Show) -> None:
    """The last ``tail`` lines of each, member by member. Raises `TooMany`."""
    _check(pods)
    texts = await asyncio.gather(*(_last(client, pod, tail) for pod in pods.values()))
    show(tuple(pods), ((name, line) for name, lines in zip(pods, texts, strict=True) for line in lines))


async def follow(look: Callable[[], AsyncIterator[Mapping[str, Pod]]], client: Client, tail: int, show: Show) -> None:
    """Show the last lines of each pod that ``look`` brings, now and later, and go on with each; never ends by itself."""
    lines: asyncio.Queue[tuple[str, str]] = asyncio.Queue(10_000)
    seen: dict[str, str] = {}  # uid -> member
    streams: dict[str, asyncio.Task[None]] = {}

    async def watch_pods() -> None:
        async for pods in look():
            _check({name: pod for name, pod in pods.items() if runs(pod)})
            for name, pod in pods.items():
                uid = pod["metadata"]["uid"]
                reading = uid in streams and not streams[uid].done()
                if reading or not _started(pod) or (uid in seen and not runs(pod)):
                    continue
                from_here = 0 if uid in seen else tail  # one that was cut goes on with what is new
                seen[uid] = name
                streams[uid] = asyncio.ensure_future(_read(client, name, pod, from_here, lines))

    watching = asyncio.ensure_future(watch_pods())
    try:
        while True:
            coming = asyncio.ensure_future(lines.get())
            await asyncio.wait({coming, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                coming.cancel()
                watching.result()
                return
            found = [coming.result()]
            while not lines.empty():
                found.append(lines.get_nowait())
            show(tuple(dict.fromkeys(seen.values())), found)
    finally:
        for task in (watching, *streams.values()):
            task.cancel()
        await asyncio.gather(watching, *streams.values(), return_exceptions=True)


def _check(pods: Mapping[str, Pod]) -> None:
    if len(pods) > MOST:
        raise TooMany(f"{len(pods)} logs at once; at most {MOST} are read: name a role or one member")


async def _last(client: Client, pod: Pod, tail: int) -> list[str]:
    if not _started(pod):
        return []
    about = pod["metadata"]
    try:
        async with (
            asyncio.timeout(30.0),
            client.log(
                about["namespace"], about["name"], {"container": names.WORKER, "tailLines": tail}, silence_seconds=30.0
            ) as content,
        ):
            return (await content.read()).decode(errors="replace").splitlines()
    except (NotFound, Invalid):  # it has gone meanwhile, or its container is being made
        return []
    except TimeoutError:
        raise Unavailable(f"the log of {about['name']} has not come within 30 s") from None


async def _read(client: Client, name: str, pod: Pod, tail: int, lines: asyncio.Queue[tuple[str, str]]) -> None:
    """Put every line of one pod into the queue until its container ends. One that is cut is begun anew by the next look."""
    about, rest = pod["metadata"], b""
    query: dict[str, str | int] = {"container": names.WORKER, "tailLines": tail, "follow": "true"}
    try:
        async with client.log(about["namespace"], about["name"], query) as content:
            async for piece in content.iter_any():
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    await lines.put((name, line.decode(errors="replace")))
                if len(rest) > LONGEST_LINE_BYTES:
                    await lines.put((name, rest.decode(errors="replace")))
                    rest = b""
        if rest:
            await lines.put((name, rest.decode(errors="replace")))
    except (NotFound, Invalid, Unavailable):
        return
    except ApiError as problem:
        await lines.put((name, f"[its log can't be read: {problem}]"))


def _started(pod: Pod) -> bool:
    """Whether its worker runs or has run."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    states = [each.get("state") or {} for each in containers if each.get("name") == names.WORKER]
    return any(state.get("running") or state.get("terminated") for state in states)
