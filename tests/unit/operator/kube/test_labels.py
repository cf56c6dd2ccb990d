"""Labels of a job are on all of its parts, except those by which another tool finds its own; and the names of its pods."""

import re
from dataclasses import replace
from typing import Any

from rljob_operator.kube.job.apply import _suffix
from rljob_operator.kube.render import names
from rljob_operator.kube.render.children import children
from rljob_operator.kube.render.external_redis import removal
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.others import core_sets, reader, workload

from .rendered import CENTRAL, MEMBERS, SECRETS, SETTINGS, owned, pod_of

HANDED_ON = {
    "team": "rl",
    "example.com/cost-centre": "42",
    "app.kubernetes.io/part-of": "games",
    "sidecar.istio.io/inject": "false",
}
KEPT_BACK = {
    "app.kubernetes.io/managed-by": "Helm",
    "app.kubernetes.io/instance": "argo-goes-by-it",
    "helm.sh/chart": "mine-1",
    "argocd.argoproj.io/instance": "mine",
    "workflows.argoproj.io/workflow": "mine",
    "kustomize.toolkit.fluxcd.io/name": "mine",
    "objectset.rio.cattle.io/hash": "1",
    "kapp.k14s.io/app": "1",
    "kueue.x-k8s.io/queue-name": "q",
    "kueue.x-k8s.io/priority-class": "high",
    "batch.kubernetes.io/job-name": "a",
    "rljob.dev/job": "another",
    "rljob.dev/member": "learner",
}
REDIS = "spec.replay.redis.external={url: 'redis://cache:6379', secretRef: {name: cache}}"


def labelled(labels: dict[str, str], *sets: str) -> Owned:
    found = owned(*CENTRAL, *sets)
    return replace(
        found, job=found.job.model_copy(update={"metadata": found.job.metadata.model_copy(update={"labels": labels})})
    )


def parts(job: Owned) -> list[dict[str, Any]]:
    return [
        *children(job, SECRETS, SETTINGS),
        *(pod_of(job, member) for member in MEMBERS.values()),
        workload(job, "pong", {"podSets": core_sets(job, SETTINGS)}),
    ]


def test_every_part_has_them_and_no_selector() -> None:
    with_none, with_all = parts(labelled({})), parts(labelled({**HANDED_ON, **KEPT_BACK}))
    assert len(with_all) > 10
    for before, after in zip(with_none, with_all, strict=True):
        assert after["metadata"].pop("labels") == {**HANDED_ON, **before["metadata"].pop("labels")}
        assert "data" in after or after == before, "no selector follows from them, nor what a queue is asked for"


def test_what_is_made_beside_a_jobs_own_parts_has_them() -> None:
    job = labelled({**HANDED_ON, **KEPT_BACK}, REDIS)
    removing = removal(pod_of(job, "replay-0"))
    assert removing is not None
    for labels in (removing["metadata"]["labels"], removing["spec"]["template"]["metadata"]["labels"]):
        assert labels.items() >= HANDED_ON.items()
        assert not labels.keys() & (KEPT_BACK.keys() | {names.MEMBER_LABEL, names.SCRAPE_LABEL})
    labels = reader(job, SETTINGS, 10.0)["metadata"]["labels"]
    assert labels == {**HANDED_ON, names.JOB_LABEL: job.name}, "it is none of the job's members"


def test_the_same_arguments_make_the_same_name_and_a_predecessor_another() -> None:
    assert _suffix("job", "learner", "") == _suffix("job", "learner", "")
    others = {_suffix("job", "learner", follows) for follows in ("", *map(str, range(1000)))}
    assert len(others) == 1001
    assert all(re.fullmatch("[b-df-hj-np-tv-z2-9]{5}", each) for each in others)


def test_jobs_and_members_have_names_of_their_own() -> None:
    assert len({_suffix(*parts) for parts in (("a", "b", "c"), ("a", "bc", ""), ("ab", "c", ""), ("", "ab", "c"))}) == 4
