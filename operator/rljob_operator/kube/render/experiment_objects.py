"""What the objects of an experiment look like: the RLJob of a run, a part of the journal, the pod that judges a run."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rljob.api.experiment import EXPERIMENT_KIND
from rljob.api.experiment_trials import Experiment
from rljob.api.job import API_VERSION

from rljob_operator.core.member import Role
from rljob_operator.experiments.state import Run
from rljob_operator.kube.render import names
from rljob_operator.kube.render.containers import resources
from rljob_operator.kube.render.metadata import Owned, handed_on
from rljob_operator.kube.render.pod import pod, trackers
from rljob_operator.kube.render.roles import section
from rljob_operator.kube.render.settings import Settings

Object = dict[str, Any]
JOURNAL_KEY: Final = "journal.jsonl"
_OF_KUEUE: Final = "kueue.x-k8s.io/"
_JUDGE: Final = f'exec rljob eval "$@" --json --summary > {names.TERMINATION_LOG}'
_OF_A_LEARNER: Final = ("args", "ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle")
"""What a container has for being a learner."""


def run(owner: Object, experiment: Experiment, of: Run) -> Object:
    """The RLJob of a run as it is to be now. It queues at Kueue by the labels of the template, or of the experiment itself."""
    made = experiment.manifest(of.trial, of.seed, experiment.raw_frames, of.overrides or None)
    labels = {
        **_of_queue(owner["metadata"].get("labels") or {}),
        **made["metadata"].get("labels", {}),
        names.TRIAL_LABEL: str(of.trial),
        names.SEED_LABEL: str(of.seed),
    }
    return {
        **made,
        "metadata": {
            **_metadata(owner, made["metadata"]["name"], labels),
            "annotations": made["metadata"].get("annotations", {}),
        },
    }


def journal_part(owner: Object, number: int, text: str) -> Object:
    """A ConfigMap with lines of the journal."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(owner, names.journal(owner["metadata"]["name"], number), {}),
        "data": {JOURNAL_KEY: text},
    }


def judge(owned: Owned, settings: Settings, experiment: str, name: str, words: Sequence[str]) -> Object:
    """The pod that plays a run's games, by the options ``words`` of `rljob eval`: with all that its learner had, what its
    podTemplate says included, but for trackers; with what an evaluator asks for, and no device. It leaves its figures as its last
    words, and goes with its run. Where its run queues at Kueue, it does, too."""
    made: dict[str, Any] = pod(owned, "learner", "judge", "", settings)
    (worker,) = [each for each in made["spec"]["containers"] if each["name"] == names.WORKER]
    beside = [each for each in made["spec"]["containers"] if each is not worker]
    of_trackers = {each["name"] for each in trackers(owned, settings)}
    before = [each for each in made["spec"].get("initContainers", ()) if each["name"] not in of_trackers]
    evaluator, storage = section(owned.job, Role.EVALUATOR), owned.job.spec.checkpoint.storage
    bucket = storage.object_store if storage is not None else None
    folder = names.RUN_DIR if storage is None else f"{names.RUNS_DIR}/{owned.name}"  # as its other runs see it
    where = bucket.url if bucket is not None else f"{folder}/checkpoints"
    server = (
        [{"name": "AWS_ENDPOINT_URL_S3", "value": bucket.endpoint}] if bucket is not None and bucket.endpoint else []
    )
    container = {
        **{field: value for field, value in worker.items() if field not in _OF_A_LEARNER},
        "env": [*worker.get("env", ()), *server],
        "command": ["sh", "-c", _JUDGE, "judge", where, *words],
        "resources": resources(evaluator.resources, settings.requests[Role.EVALUATOR]),
    }
    # Without the operator's: it is none of the job's members.
    labels = {**handed_on(made["metadata"]["labels"]), names.EXPERIMENT_LABEL: experiment, names.JOB_LABEL: owned.name}
    queue = _of_queue(owned.job.metadata.labels) if settings.kueue else {}
    about = owned.metadata(name, {**labels, **queue})
    if queue:  # Kueue leaves alone what a kind controls that its externalFrameworks name, as RLJobs should be there
        about["ownerReferences"] = [{**each, "controller": False} for each in about["ownerReferences"]]
    spec = {field: value for field, value in made["spec"].items() if field not in ("hostname", "subdomain")}
    return {
        **made,
        "metadata": {
            **about,
            "annotations": {
                key: value for key, value in made["metadata"]["annotations"].items() if not key.startswith(names.OURS)
            },
        },
        "spec": {**spec, "containers": [container, *beside], "initContainers": before},
    }


def _of_queue(labels: Mapping[str, str]) -> dict[str, str]:
    return {label: value for label, value in labels.items() if label.startswith(_OF_KUEUE)}


def _metadata(owner: Object, name: str, labels: Mapping[str, str]) -> Object:
    about = owner["metadata"]
    return {
        "name": name,
        "namespace": about["namespace"],
        "labels": {**labels, names.EXPERIMENT_LABEL: about["name"]},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": EXPERIMENT_KIND,
                "name": about["name"],
                "uid": about["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
