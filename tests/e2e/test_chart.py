"""What a user does with the chart, in its order: install, train, upgrade beside a running job, uninstall.

The tests follow each other on one release, which looks after all namespaces.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import (
    CHECKPOINTS,
    LONG_SECONDS,
    KubectlFailed,
    Namespace,
    checkpoint_claim,
    endless,
    example,
    made_namespace,
    pause,
)
from tests.e2e.nodes import drained
from tests.e2e.release import OWNED, Release
from tests.support.chart import Chart, find_program
from tests.support.waiting import eventually

VARIABLE = "RLJOB_E2E_OPERATOR_IMAGE"


@pytest.fixture(scope="module")
def release(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Not installed yet; gone in the end, whatever a test has left."""
    program = find_program("helm")
    if program is None or not os.environ.get(VARIABLE):
        pytest.skip(f"needs helm on the PATH, and in {VARIABLE} an operator image that the cluster can pull")
    with made_namespace(kubeconfig) as namespace:
        chart = Chart(program, tmp_path_factory.mktemp("helm"))
        found = Release(chart, namespace, os.environ[VARIABLE], os.environ["RLJOB_E2E_IMAGE"])
        yield found
        found.helm("uninstall", "--no-hooks", "--ignore-not-found")


def test_install(release: Release) -> None:
    """The CRD was applied by another client; the release takes it with the commands that the refusal tells."""
    began = time.monotonic()
    release.install()
    installed = time.monotonic()
    release.wait_rolled_out()
    print(f"helm install {installed - began:.1f} s, ready {time.monotonic() - began:.1f} s after its start")

    pods = release.pods()
    assert len(pods) == 2
    open_to_all = [node for node in release.namespace.list("nodes") if not node["spec"].get("taints")]
    assert len({pod["spec"]["nodeName"] for pod in pods.values()}) == min(2, len(open_to_all))
    assert release.namespace.kubectl("get", "lease", "rljob-operator", "-o", "jsonpath={.spec.holderIdentity}")

    def endpoints() -> str:
        return release.namespace.kubectl("get", "endpointslices", f"--selector={OWNED}", "-o", "json")

    eventually(lambda: endpoints().count('"ready": true') == 2, endpoints, LONG_SECONDS, pause)


def test_an_example_trains_to_its_end(release: Release, jobs: Namespace) -> None:
    jobs.apply(example("cartpole-impala"))
    jobs.kubectl("wait", "rljob/cartpole-impala", "--for=condition=Complete", "--timeout=600s", seconds=630)
    assert jobs.condition("cartpole-impala", "Complete")["reason"] == "TargetReturnReached"
    jobs.delete_jobs()


def test_an_example_with_spot_actors_is_scaled_evicted_suspended_and_resumed(release: Release, jobs: Namespace) -> None:
    name = "spot-actors"
    together = {"replicas": 2, "topologySpread": "None"}  # as the test has one spot node only
    jobs.train(checkpoint_claim(), example(name, actors=together, autoscaling={"mode": "Disabled"}))
    (spot,) = {pod["spec"]["nodeName"] for pod in jobs.pods(name, "actor").values()}

    jobs.kubectl("scale", "rljob", name, "--replicas=3")
    jobs.wait_actors(name, 3)
    jobs.kubectl("scale", "rljob", name, "--replicas=1")
    jobs.wait_actors(name, 1)
    with drained(jobs, spot):
        eventually(
            lambda: [p["spec"]["nodeName"] for p in jobs.pods(name, "actor").values()] not in ([], [spot]),
            lambda: str(jobs.uids(name)),
            LONG_SECONDS,
            pause,
        )
        jobs.wait_actors(name, 1)
    assert jobs.job_status(name)["restarts"]["counted"] == 0

    jobs.suspend(name)
    step = jobs.job_status(name)["checkpoint"]["step"]
    eventually(lambda: not jobs.all_pods(name), lambda: str(jobs.uids(name)), LONG_SECONDS, pause)
    jobs.patch(name, {"suspend": False})
    jobs.wait_updates(name, more_than=step)
    jobs.delete_jobs()


def test_whoever_edits_a_namespace_edits_its_jobs(release: Release, jobs: Namespace) -> None:
    for role in ("view", "edit"):
        jobs.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}er")

    def may(user: str, verb: str, *more: str) -> bool:
        try:
            return "yes" in jobs.kubectl("auth", "can-i", verb, "rljobs.rljob.dev", f"--as={user}", *more)
        except KubectlFailed:
            return False

    eventually(
        lambda: may("viewer", "get") and may("editer", "create"), "the roles are not aggregated", LONG_SECONDS, pause
    )
    assert may("editer", "patch", "--subresource=scale")
    assert not may("viewer", "create")
    assert not may("editer", "patch", "--subresource=status")


def test_an_upgrade_beside_a_running_job(release: Release, jobs: Namespace) -> None:
    jobs.train(endless("kept", checkpoint={"storage": {"persistentVolumeClaim": {"claimName": CHECKPOINTS}}}))
    before, operators = jobs.uids("kept"), set(release.pods())

    release.upgrade(workers=8)
    release.wait_rolled_out()
    eventually(lambda: not operators & set(release.pods()), "the old operators stay", LONG_SECONDS, pause)
    jobs.kubectl("scale", "rljob", "kept", "--replicas=2")  # the new one works
    jobs.wait_actors("kept", 2)
    after = jobs.uids("kept")
    assert {member: after[member] for member in before} == before
    restarts = [
        each["restartCount"] for pod in jobs.pods("kept").values() for each in pod["status"]["containerStatuses"]
    ]
    assert restarts == [0] * len(restarts)


def test_an_uninstall_beside_a_running_job(release: Release, jobs: Namespace) -> None:
    """Its pods go on. Nothing is left but the CRD and what belongs to users, and whatever is deleted then goes by itself."""
    before = jobs.uids("kept")
    release.helm("uninstall")
    eventually(lambda: not release.left(), lambda: f"left: {release.left()}", LONG_SECONDS, pause)
    assert jobs.uids("kept") == before
    assert jobs.kubectl("get", "crd", "rljobs.rljob.dev", "-o", "name")
    jobs.kubectl("delete", "namespace", jobs.name, "--wait=true", f"--timeout={LONG_SECONDS:.0f}s")
