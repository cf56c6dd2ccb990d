"""``rljob profile``: what the processes of a job that runs do with their time, function by function and stage by stage."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rljob.api.exit_codes import EXIT_FAILURE
from rljob.api.status_document import json_document
from rljob.command_errors import one_line_errors
from rljob.errors import CommandRefused, UsageError
from rljob.strict_json import dumps

from rljob_operator.polls.reach import NoAnswer, Reach
from rljob_operator.verbs.jobs import Place, listed
from rljob_operator.verbs.options import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    MembersArgument,
    NamespaceOption,
    jobs_of,
)
from rljob_operator.view.profile import MemberProfile, chrome_trace

_AGAIN_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 5.0
"""A member without an answer for so long has ended, or its machine can't be reached."""


def profile(
    job: JobArgument = None,
    who: MembersArgument = None,
    seconds: Annotated[int, typer.Option(min=1, max=600, help="How long.")] = 10,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A new folder.", show_default="RUN/profiles/TIME; of a cluster NS/JOB/profiles/TIME"
        ),
    ] = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Profile the processes of a running job: which functions take their time, and who waits for whom.

    Prints the most expensive functions and writes a time line of all roles for ui.perfetto.dev (timeline.json): their stages,
    the path of experience, and the functions of each thread. Ctrl-C ends it early and keeps the samples.

    On a cluster this uses the API server and needs the right to get pods/proxy.

    Examples:

      rljob profile

      rljob profile learner --seconds 30

      rljob profile -n team-a pong actor-0
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        if job is not None and who is None and jobs.splits(job):
            job, who = None, job
        chosen = jobs.chosen(job)
        folder = output or Path(chosen.place) / "profiles" / time.strftime("%Y%m%d-%H%M%S")
        found: dict[str, MemberProfile] = {}

        async def work(reach: Reach, urls: Mapping[str, str]) -> None:
            names = sorted(urls, key=lambda name: (not name.startswith("learner"), len(name), name))
            meant = {name: urls[name] for name in names if who in (None, name, name.partition("-")[0])}
            if not meant:
                there = f"there are: {listed(names, most=20)}" if urls else "nothing runs"
                raise UsageError(f"{chosen.place}: no {who or 'process'} to profile; {there}")
            with _writing(folder):
                folder.mkdir(parents=True)
            typer.echo(f"{chosen.place}: profiling {listed(list(meant))} for {seconds} s", err=True)
            found.update({name: MemberProfile(name) for name in meant})
            await asyncio.gather(*(_sample(reach, url, found[name], seconds) for name, url in meant.items()))

        try:
            chosen.ask(work)
        except KeyboardInterrupt:
            if not found:  # there is no folder yet
                raise
            typer.echo("ended early", err=True)
        sampled = [each for each in found.values() if each.parts]
        if not sampled:
            folder.rmdir()
            reasons = "; ".join(f"{each.name}: {each.problem or 'ended early'}" for each in found.values())
            raise CommandRefused(f"{chosen.place}: nothing was sampled: {reasons}", EXIT_FAILURE)
        with _writing(folder):
            (folder / "timeline.json").write_text(dumps(chrome_trace(sampled)))
        for each in found.values():
            typer.echo("\n".join([*each.table(), ""]))
        typer.echo(f"{folder}: timeline.json, which ui.perfetto.dev opens")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What can't be written is told, as a UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{folder}: can't be made and filled: {error.strerror}; name a new folder with -o") from None


async def _sample(reach: Reach, url: str, profile: MemberProfile, seconds: int) -> None:
    """Read what a member samples, until it is enough or the member is gone. What had come until then stays."""
    read_page, heard = "profile", time.monotonic()
    while profile.seconds < seconds and not profile.problem:
        try:
            answer = json_document(await reach.read(url, read_page))
            for part in answer["parts"]:
                profile.add(part)
            profile.boot, read_page, heard = str(answer["boot"]), f"profile/{int(answer['next'])}", time.monotonic()
        except (NoAnswer, KeyError, ValueError, TypeError, IndexError) as problem:
            if time.monotonic() - heard > _PATIENCE_SECONDS:
                profile.problem = f"it has ended or no longer answers: {problem}"
        await asyncio.sleep(_AGAIN_SECONDS)
