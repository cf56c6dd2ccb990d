"""Verbs that change a job: `suspend`, `resume`, `scale`, `set`, `checkpoint`, `stop`. They write what is stored, and the
controller acts."""

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rljob.api import ManifestError, parse_job, transition_problems
from rljob.api.live import digest, wanted
from rljob.api.load import given
from rljob.api.overrides import apply_overrides, read_overrides
from rljob.api.status_model import rfc3339
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError

from rljob_operator.core.desired import CHECKPOINT_ANNOTATION, STOP_ANNOTATION
from rljob_operator.kube.apiserver.resources import merge_patch
from rljob_operator.verbs.jobs import Job, Jobs, NotReached, Place, wait_for, without_controller
from rljob_operator.verbs.options import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    NamespaceOption,
    TimeoutOption,
    WaitOption,
    jobs_of,
)
from rljob_operator.view.job_view import JobView
from rljob_operator.view.reasons import ending


def suspend(
    job: JobArgument = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Suspend a job: actors drain, the learner saves a verified checkpoint, then all roles stop.

    `rljob run` stays and shows Suspended. `rljob resume` continues at the same step with the same replay.

    Examples:

      rljob suspend --wait

      rljob suspend runs/pong-apex-20260101-120000

      rljob suspend -n team-a pong
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        chosen = jobs.chosen(job)
        if _is_stopped(_changeable(chosen)):
            raise UsageError(f"{chosen.place} is already stopped; `{chosen.command('resume')}` resumes it")
        generation = chosen.change({"spec": {"suspend": True}})
        suspended = chosen.look(figures=False).status.is_true("Suspended")
        _tell(chosen, "is suspended already" if suspended else "suspension asked for")
        if wait:
            seen = wait_for(chosen, generation, lambda seen: seen.status.is_true("Suspended"), "suspended", timeout)
            at = f" at update {seen.checkpoint.step:,}" if seen.checkpoint is not None else ""
            told = seen.status.condition("Suspended")
            lost = f"; {told.message}" if told is not None and told.message else ""
            typer.echo(f"{chosen.place}: suspended{at}{lost}")


def resume(
    job: JobArgument = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Resume a suspended job, or a stopped one of a cluster, at the step where it was.

    If `rljob run` of a run has ended, start it again instead: `rljob run RUN/job.yaml --run-dir RUN --resume`.

    Examples:

      rljob resume --wait

      rljob resume -n team-a pong
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        chosen = jobs.chosen(job)
        generation = _edit(chosen, {"spec": {"suspend": False}, "metadata": {"annotations": {STOP_ANNOTATION: None}}})
        seen = chosen.look(figures=False)
        runs = seen.status.is_true("Ready") and seen.status.observed_generation >= generation
        _tell(chosen, "is not suspended" if runs else "asked to go on")
        if wait:
            seen = wait_for(chosen, generation, lambda seen: seen.status.is_true("Ready"), "running", timeout)
            typer.echo(f"{chosen.place}: {seen.state}")


def scale(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN|JOB] N",
            help="The job (left out: the newest under runs/, or the only one of the namespace), and the number of actors.",
            show_default=False,
        ),
    ],
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Set the number of actors (spec.actors.replicas).

    With autoscaling.mode Disabled it stays at N. With Internal the controller continues from N.

    Examples:

      rljob scale 2

      rljob scale runs/pong-apex-20260101-120000 4 --wait

      rljob scale -n team-a pong 16
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        chosen, actors = _job_and_number(jobs, words)
        generation = _edit(chosen, {"spec": {"actors": {"replicas": actors}}})
        _tell(chosen, f"{actors} actors asked for")
        if wait:
            seen = wait_for(chosen, generation, lambda seen: _has_actors(seen, actors), f"{actors} actors", timeout)
            typer.echo(f"{chosen.place}: {seen.status.actors.ready} actors ready")


def set_fields(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN|JOB] PATH=VALUE...",
            help="The job (left out: the newest under runs/, or the only one of the namespace), and fields as with --set.",
            show_default=False,
        ),
    ],
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Change fields of a job. A running learner applies live ones, such as learning rate, costs and clips, between two updates,
    without a restart. `rljob explain` says when a field may change.

    Examples:

      rljob set algorithm.learningRate=3e-4 --wait

      rljob set runs/pong algorithm.entropyCost=0.02 algorithm.gradientClipNorm=1

      rljob set -n team-a pong algorithm.learningRate=3e-4
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        named, texts = (words[:1], words[1:]) if "=" not in words[0] else ([], words)
        if not texts:
            raise UsageError(f"set {' '.join(words)}: PATH=VALUE is missing, such as algorithm.learningRate=3e-4")
        chosen = jobs.chosen(named[0] if named else None)
        before = given(_changeable(chosen).document)
        after = apply_overrides(before, read_overrides(texts, before))
        job = parse_job(after)
        if problems := [] if job.spec.suspend else transition_problems(parse_job(before), job):
            raise ManifestError(problems)
        generation = chosen.change(merge_patch(before, after))
        _tell(chosen, f"{' '.join(texts)} asked for")
        if wait:
            name = digest(wanted(job.spec))
            wait_for(chosen, generation, lambda seen: _follows(seen, name), "followed", timeout)
            typer.echo(f"{chosen.place}: the learner follows")


def checkpoint(
    job: JobArgument = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Have the learner write a checkpoint now; training goes on meanwhile.

    Examples:

      rljob checkpoint --wait

      rljob checkpoint -n team-a pong --wait
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        chosen = jobs.chosen(job)
        seen = _changeable(chosen)
        if not seen.attended:
            raise UsageError(without_controller(seen))
        if seen.status.is_true("Suspended") or _is_stopped(seen):
            how = "stopped" if _is_stopped(seen) else "suspended"
            raise UsageError(f"{chosen.place} is {how}, and saved itself then; `{chosen.command('resume')}` first")
        asked = rfc3339(time.time())
        _edit(chosen, {"metadata": {"annotations": {CHECKPOINT_ANNOTATION: asked}}})
        _tell(chosen, "checkpoint asked for")
        if wait:
            found = wait_for(chosen, 0, lambda seen: _answered(seen, asked), "saved", timeout).status.checkpoint
            assert found is not None
            typer.echo(f"{chosen.place}: checkpoint of update {found.step:,} verified, {found.uri}")


def _is_stopped(seen: JobView) -> bool:
    """Whether the user of a cluster's job has stopped it."""
    return STOP_ANNOTATION in ((seen.document.get("metadata") or {}).get("annotations") or {})


def _has_actors(seen: JobView, actors: int) -> bool:
    now = seen.status.actors
    return now.ready == now.replicas == actors and now.draining == 0


def _follows(seen: JobView, wanted: str) -> bool:
    said = seen.status.following
    return said is not None and said.followed and said.wanted == wanted


def _answered(seen: JobView, asked: str) -> bool:
    request, valid = seen.status.controller.checkpoint_request, seen.status.condition("CheckpointValid")
    if request is None or request.requested_at != asked:
        return False
    if not request.done and valid is not None and valid.reason == "StorageError":
        raise NotReached(f"the checkpoint failed: {valid.message}")
    return request.done and seen.status.checkpoint is not None


def _edit(job: Job, patch: Mapping[str, Any]) -> int:
    """Store an edit of a job that can still act on it; answers the generation."""
    _changeable(job)
    return job.change(patch)


def _changeable(job: Job) -> JobView:
    """A look at a job that has not ended for good. Raises UsageError."""
    seen = job.look(figures=False)
    if seen.status.finished:
        raise UsageError(f"{job.place} has ended and can no longer change: {ending(seen)}")
    return seen


def _tell(job: Job, what: str) -> None:
    seen = job.look(figures=False)
    typer.echo(f"{job.place}: {what}" if seen.attended else f"{job.place}: {what}; {without_controller(seen)}")


def _job_and_number(jobs: Jobs, words: Sequence[str]) -> tuple[Job, int]:
    """``scale JOB N`` or ``scale N``. Raises UsageError."""
    *named, number = words
    if len(named) > 1 or not (number.isascii() and number.isdecimal()):
        example = shlex.join(["rljob", "scale", words[0], "2"])
        raise UsageError(
            f"scale {' '.join(words)}: allowed: a run or job, and the number of actors; such as `{example}`"
        )
    return jobs.chosen(named[0] if named else None), int(number)


def stop(
    job: Annotated[
        str,
        typer.Argument(metavar="RUN|JOB", help="The run's folder; on a cluster the job's name.", show_default=False),
    ],
    timeout: TimeoutOption = 180.0,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """End a run as Ctrl-C in its terminal would: drain, checkpoint, stop. You can resume it.

    With an experiment's folder it ends all runs.

    A job on a cluster ends in the same order and stays stopped until `rljob resume`; `kubectl delete rljob` removes it.

    Examples:

      rljob stop runs/pong-apex-20260101-120000

      rljob stop -n team-a pong
    """
    with one_line_errors(), jobs_of(Place(namespace, context, kubeconfig)) as jobs:
        jobs.chosen(job, or_experiment=True).stop(typer.echo, timeout)
