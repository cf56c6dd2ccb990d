"""Verbs that change what is wanted of a run: `suspend`, `resume`, `scale`, `checkpoint`. They edit ``job.yaml``; the controller
acts."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rljob.api.timestamps import rfc3339
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError

from rljob_operator.core.desired import CHECKPOINT_ANNOTATION
from rljob_operator.local.job_view import look
from rljob_operator.local.run_folder import chosen_run
from rljob_operator.local.spec_store import SpecStore
from rljob_operator.verbs.options import (
    NotReached,
    RunArgument,
    TimeoutOption,
    WaitOption,
    wait_for,
    without_controller,
)
from rljob_operator.view.job_view import JobView
from rljob_operator.view.reasons import ending


def suspend(run: RunArgument = None, wait: WaitOption = False, timeout: TimeoutOption = 120.0) -> None:
    """Suspend a run: its actors drain, the learner saves itself and is verified, then everything stops.

    `rljob run` stays and shows Suspended. `rljob resume` goes on at the same step with the same replay content.

    Examples:

      rljob suspend --wait

      rljob suspend runs/pong-apex-20260101-120000
    """
    with one_line_errors():
        folder = chosen_run(run)
        generation = _edit(folder, lambda document: _set_spec(document, ("suspend",), True))
        suspended = look(folder, figures=False).status.is_true("Suspended")
        _tell(folder, "is suspended already" if suspended else "suspension asked for")
        if wait:
            seen = wait_for(folder, generation, lambda seen: seen.status.is_true("Suspended"), "suspended", timeout)
            checkpoint = seen.status.checkpoint
            at = f" at update {checkpoint.step:,}" if checkpoint is not None else ""
            typer.echo(f"{folder}: suspended{at}")


def resume(run: RunArgument = None, wait: WaitOption = False, timeout: TimeoutOption = 120.0) -> None:
    """Resume a suspended run at the step where it was suspended.

    A run whose `rljob run` has ended needs a controller first: `rljob run RUN/job.yaml --run-dir RUN --resume`.

    Example:

      rljob resume --wait
    """
    with one_line_errors():
        folder = chosen_run(run)
        generation = _edit(folder, lambda document: _set_spec(document, ("suspend",), False))
        seen = look(folder, figures=False)
        runs = seen.status.is_true("Ready") and seen.status.observed_generation >= generation
        _tell(folder, "is not suspended" if runs else "asked to go on")
        if wait:
            seen = wait_for(folder, generation, lambda seen: seen.status.is_true("Ready"), "running", timeout)
            typer.echo(f"{folder}: {seen.state}")


def scale(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] N",
            help="The run's folder (left out: the newest under runs/), and the number of actors.",
            show_default=False,
        ),
    ],
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Set the number of actors (spec.actors.replicas).

    With autoscaling.mode Disabled it stays at N. With Internal it is a jump to N, from where the controller goes on.

    Examples:

      rljob scale 2

      rljob scale runs/pong-apex-20260101-120000 4 --wait
    """
    with one_line_errors():
        folder, actors = _run_and_number(words)
        generation = _edit(folder, lambda document: _set_spec(document, ("actors", "replicas"), actors))
        _tell(folder, f"{actors} actors asked for")
        if wait:
            seen = wait_for(folder, generation, lambda seen: _has_actors(seen, actors), f"{actors} actors", timeout)
            typer.echo(f"{folder}: {seen.status.actors.ready} actors ready")


def checkpoint(run: RunArgument = None, wait: WaitOption = False, timeout: TimeoutOption = 120.0) -> None:
    """Have the learner write a checkpoint now; training goes on meanwhile.

    Example:

      rljob checkpoint --wait
    """
    with one_line_errors():
        folder = chosen_run(run)
        seen = _changeable(folder)
        if seen.controller is None:
            raise UsageError(without_controller(seen))
        if seen.status.is_true("Suspended"):
            raise UsageError(f"{folder} is suspended, and saved itself then; `rljob resume {folder}` first")
        asked = rfc3339(time.time())

        def change(document: dict[str, Any]) -> None:
            annotations = document["metadata"].get("annotations") or {}
            document["metadata"]["annotations"] = annotations | {CHECKPOINT_ANNOTATION: asked}

        _edit(folder, change)
        _tell(folder, "checkpoint asked for")
        if wait:
            found = wait_for(folder, 0, lambda seen: _answered(seen, asked), "saved", timeout).status.checkpoint
            assert found is not None
            typer.echo(f"{folder}: checkpoint of update {found.step:,} verified, {found.uri}")


def _has_actors(seen: JobView, actors: int) -> bool:
    now = seen.status.actors
    return now.ready == now.replicas == actors and now.draining == 0


def _answered(seen: JobView, asked: str) -> bool:
    request, valid = seen.status.controller.checkpoint_request, seen.status.condition("CheckpointValid")
    if request is None or request.requested_at != asked:
        return False
    if not request.done and valid is not None and valid.reason == "StorageError":
        raise NotReached(f"the checkpoint failed: {valid.message}")
    return request.done and seen.status.checkpoint is not None


def _edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> int:
    """Store an edit of a run that can still act on it; answers the generation."""
    _changeable(folder)
    return SpecStore(folder).edit(change)


def _changeable(folder: Path) -> JobView:
    """A look at a run that has not ended for good. Raises UsageError."""
    seen = look(folder, figures=False)
    if seen.status.finished:
        raise UsageError(f"{folder} has ended, nothing can be changed any more: {ending(seen)}")
    return seen


def _set_spec(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    node = document["spec"]
    for name in path[:-1]:
        node[name] = node.get(name) or {}
        node = node[name]
    node[path[-1]] = value


def _tell(folder: Path, what: str) -> None:
    seen = look(folder, figures=False)
    typer.echo(f"{folder}: {what}" if seen.controller is not None else f"{folder}: {what}; {without_controller(seen)}")


def _run_and_number(words: Sequence[str]) -> tuple[Path, int]:
    """``scale RUN N`` or ``scale N``. Raises UsageError."""
    *runs, number = words
    if len(runs) > 1:
        raise UsageError(
            f"scale {' '.join(words)}: allowed: a run and a number of actors, such as `rljob scale {words[0]} 2`"
        )
    if not (number.isascii() and number.isdecimal()):
        example = shlex.join(["rljob", "scale", *(runs or [number]), "2"])
        raise UsageError(f"scale {' '.join(words)}: the number of actors is missing at the end; such as `{example}`")
    return chosen_run(Path(runs[0]) if runs else None), int(number)
