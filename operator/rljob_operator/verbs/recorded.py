"""What a cluster's job has recorded, as a run folder with its page: of a job that runs, has ended or is gone."""

import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from rljob.checkpoints.location import location
from rljob.checkpoints.names import CheckpointProblem
from rljob.checkpoints.recording import METRICS, kept, unpacked
from rljob.comparison.comparison import compare
from rljob.comparison.page import render_comparison
from rljob.errors import UsageError
from rljob.files import replace
from rljob.strict_json import dumps
from rljob.telemetry.report import REPORT_FILE, write_report

from rljob_operator.core.context import some
from rljob_operator.kube.apiserver.resources import PODS, Object
from rljob_operator.kube.render import names
from rljob_operator.kube.view.policy_pod import NoPolicy, fetch_recording, noted
from rljob_operator.local.run_folder import EFFECTIVE_FILE, OUTCOME_FILE, RUNS, STATUS_FILE
from rljob_operator.verbs.cluster_jobs import ClusterJobs
from rljob_operator.verbs.experiment_page import write_experiment_report


def write_recorded(jobs: ClusterJobs, name: str, which: str, say: Callable[[str], None]) -> list[Path]:
    """Fetch the recording of a job, or those of an experiment's runs, below ``runs/``, and write the page.

    Args:
        which: how its uid, or the time of its creation, begins; empty for the newest.
        say: told what the user may want to know.

    Returns: the page; those of the runs for an experiment that is gone before any was judged.

    Raises UsageError where there is nothing, with what there is; CheckpointProblem, StorageProblem, OSError.
    """
    with jobs.refusing("get", "rljobs.rljob.dev and configmaps"):
        notes = jobs.run(noted(jobs.client, jobs.namespace, name))
    lives = {each["of"]: each for each in notes[::-1]}  # of each experiment its newest run
    meant = [
        each for each in [*lives.values()][::-1] if each["of"].startswith(which) or each["created"].startswith(which)
    ]
    if not meant:
        raise UsageError(f"--uid {which}: there are {_listed(lives.values())}") if lives else _nothing(jobs, name)
    folder = RUNS / f"{name}-{meant[0]['of'][:8]}"
    if len(meant) > 1:
        say(f"{len(meant)} have the name {name}: {_listed(meant)}; the first is taken, --uid takes another")
    if meant[0]["of"] == meant[0]["uid"]:
        return [write_report(_fetched(jobs, meant[0], folder, say))]
    runs = list[Path]()
    for each in notes:
        if each["of"] == meant[0]["of"]:
            try:
                runs.append(_fetched(jobs, each, folder / each["name"], say))
            except UsageError as problem:  # it failed before it learned anything, or its bucket was emptied
                say(str(problem))
    if meant[0]["there"]:
        return [write_experiment_report(folder, jobs.named(name).experiment())]
    try:
        replace(folder / REPORT_FILE, render_comparison(compare(runs)))
    except UsageError:  # its judgements were in its journal
        return [write_report(run) for run in runs]
    return [folder / REPORT_FILE]


def _nothing(jobs: ClusterJobs, name: str) -> UsageError:
    try:
        jobs.named(name).look(figures=False)
    except UsageError as problem:
        return UsageError(
            f"{problem}; nor is one known that is gone: a recording outlives its job where checkpoint.storage names a bucket or "
            f"a claim, and ConfigMap {names.history(name)} names it"
        )
    return UsageError(f"{jobs.namespace}/{name} has not begun, so nothing is recorded")


def _listed(lives: Iterable[Object]) -> str:
    return some((f"{each['created']} (uid {each['of']})" for each in lives), 8)


def _fetched(jobs: ClusterJobs, note: Object, folder: Path, say: Callable[[str], None]) -> Path:
    out, place = io.BytesIO(), f"{jobs.namespace}/{note['name']} of {note['created']}"
    try:
        with jobs.refusing("list pods, create pods/exec and, where no learner runs,", PODS):
            here = jobs.run(fetch_recording(jobs.client, jobs.namespace, note, out, say))
        if not here:
            endpoint = "" if os.environ.get("AWS_ENDPOINT_URL") else note["endpoint"]
            out.write(kept(location(note["url"], endpoint), note["uid"]))
        job, metrics, damage = unpacked(out.getvalue())
    except (CheckpointProblem, NoPolicy) as problem:
        raise UsageError(f"{place}: {problem}") from None
    if damage:
        say(f"{place}: its recording is damaged ({damage}); the page shows the records before that")
    folder.mkdir(parents=True, exist_ok=True)
    documents = ((STATUS_FILE, note["status"]), (OUTCOME_FILE, note.get("outcome")))
    for file, content in {
        EFFECTIVE_FILE: job,
        METRICS: metrics.decode(errors="replace"),
        **{file: dumps(each) for file, each in documents if each},
    }.items():
        replace(folder / file, content)
    return folder
