"""From the chart and the images of an earlier commit to those of this tree, beside a job that runs, with fields added and removed
since: `earlier_release.py` says which commit and which fields. Such a job is left alone until it is suspended and resumed.

The tests follow each other on one release, which looks after all namespaces. Its CRD takes the place of the cluster's, so they
are skipped where the cluster has jobs.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import LONG_SECONDS, KubectlFailed, Namespace, endless, made_namespace, pause
from tests.e2e.release import Release, images
from tests.support.chart import Chart, find_program
from tests.support.waiting import eventually

FOLDER, OPERATOR_IMAGE, WORKER_IMAGE = (f"RLJOB_E2E_EARLIER{part}" for part in ("", "_OPERATOR_IMAGE", "_IMAGE"))
NEXT_OPERATOR_IMAGE = "RLJOB_E2E_OPERATOR_IMAGE"
JOB = endless("kept", secondsKeptAfterFinished=3600)
TTL_SECONDS = 15


@pytest.fixture(scope="module")
def release(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Not installed yet, on a cluster without the CRD; gone in the end, whatever a test has left. The CRD stays."""
    helm = find_program("helm")
    missing = [name for name in (FOLDER, OPERATOR_IMAGE, WORKER_IMAGE, NEXT_OPERATOR_IMAGE) if not os.environ.get(name)]
    if helm is None or missing:
        pytest.skip(f"needs helm on the PATH, and {', '.join(missing)}: an earlier commit's tree and images of it")
    with made_namespace(kubeconfig) as namespace:
        if namespace.kubectl("get", "rljobs", "--all-namespaces", "-o", "name"):
            pytest.skip("the cluster has jobs, which would go with its CRD")
        namespace.kubectl("delete", "crd", "rljobs.rljob.dev", "rlexperiments.rljob.dev", "--ignore-not-found")
        chart = Chart(helm, tmp_path_factory.mktemp("helm"))
        found = Release(chart, namespace, os.environ[OPERATOR_IMAGE], os.environ[WORKER_IMAGE])
        yield found
        found.helm("uninstall", "--no-hooks", "--ignore-not-found")


def test_a_job_of_the_earlier_release(release: Release, jobs: Namespace) -> None:
    release.install(Path(os.environ[FOLDER]) / "charts" / "rljob-operator")
    release.wait_rolled_out()
    jobs.train(JOB)
    assert spec_of(jobs)["secondsKeptAfterFinished"] == 3600
    assert read_by_roles(jobs)["secondsKeptAfterFinished"] == 3600


def test_the_upgrade_restarts_nothing(release: Release, jobs: Namespace) -> None:
    before, operators, read = jobs.uids("kept"), set(release.pods()), read_by_roles(jobs)
    updates = jobs.learner_figures("kept")["updates"]

    release.upgrade(**images(os.environ[NEXT_OPERATOR_IMAGE], os.environ["RLJOB_E2E_IMAGE"]))
    release.wait_rolled_out()
    eventually(lambda: not operators & set(release.pods()), "the old operators stay", LONG_SECONDS, pause)
    jobs.wait_for("kept", "Accepted", "False", "RenderingUnknown")
    jobs.wait_updates("kept", more_than=updates)
    assert jobs.uids("kept") == before
    restarts = [
        each["restartCount"] for pod in jobs.pods("kept").values() for each in pod["status"]["containerStatuses"]
    ]
    assert restarts == [0] * len(restarts)
    assert read_by_roles(jobs) == read


def test_a_removed_field_is_no_longer_stored_and_is_refused(release: Release, jobs: Namespace) -> None:
    assert "secondsKeptAfterFinished" not in spec_of(jobs)
    with pytest.raises(KubectlFailed, match=r'unknown field "spec\.secondsKeptAfterFinished"'):
        jobs.apply(JOB)


def test_a_suspension_brings_it_to_this_release(release: Release, jobs: Namespace) -> None:
    jobs.kubectl("scale", "rljob", "kept", "--replicas=2")
    updates = jobs.learner_figures("kept")["updates"]
    jobs.patch("kept", {"suspend": True})
    jobs.wait_for("kept", "Suspended", "True")
    jobs.patch("kept", {"suspend": False})
    jobs.wait_actors("kept", 2)
    jobs.wait_updates("kept", more_than=updates)
    assert jobs.condition("kept", "Accepted")["status"] == "True"
    assert {pod["spec"]["containers"][0]["image"] for pod in jobs.pods("kept").values()} == {
        os.environ["RLJOB_E2E_IMAGE"]
    }
    assert "ttlSecondsAfterFinished" not in spec_of(jobs)


def test_an_added_field_is_obeyed_and_the_job_completes(release: Release, jobs: Namespace) -> None:
    jobs.patch("kept", {"ttlSecondsAfterFinished": TTL_SECONDS, "successPolicy": {"rawFrames": 1}})
    jobs.wait_for("kept", "Complete", "True")
    eventually(lambda: jobs.get("rljob", "kept") is None, "the job outlives its time", LONG_SECONDS, pause)
    jobs.wait_empty()


def spec_of(jobs: Namespace) -> dict[str, Any]:
    return dict(json.loads(jobs.kubectl("get", "rljob", "kept", "-o", "json"))["spec"])


def read_by_roles(jobs: Namespace) -> dict[str, Any]:
    """The spec that roles of the job read when they start."""
    (text,) = json.loads(jobs.kubectl("get", "configmap", "kept-job", "-o", "json"))["data"].values()
    return dict(yaml.safe_load(text)["spec"])
