"""An operator with another image and configuration takes over while a job trains: nothing is restarted, and nothing is mixed."""

import os
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import LONG_SECONDS, Namespace, Object, endless, pause
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

VARIABLE = "RLJOB_E2E_NEXT_IMAGE"
CONFIGURATION = {
    "requests": {"actor": {"cpu": "30m", "ephemeral-storage": "1Mi"}},
    "gpuNodes": {"keepOff": "None"},
    "prometheusNamespaces": {"team": "watch"},
}


def images(namespace: Namespace, job: str) -> dict[str, str]:
    """Member -> image of its worker."""
    return {member: pod["spec"]["containers"][0]["image"] for member, pod in namespace.pods(job).items()}


def look(namespace: Namespace, job: str, member: str) -> Object:
    """What its pod was made like."""
    return {name: value for name, value in namespace.pods(job)[member]["spec"].items() if name != "nodeName"}


@pytest.fixture
def next_image() -> str:
    """Another name of the worker image."""
    found = os.environ.get(VARIABLE, "")
    if not found:
        pytest.skip(f"{VARIABLE} is not set: a second worker image of this tree (docs/testing-on-kubernetes.md)")
    return found


def test_an_operator_with_another_image_and_configuration_restarts_nothing(
    namespace: Namespace, operator: OperatorProcess, next_image: str, tmp_path: Path
) -> None:
    first = os.environ["RLJOB_E2E_IMAGE"]
    namespace.train(endless("upgraded"))
    before, actor = namespace.uids("upgraded"), look(namespace, "upgraded", "actor-0")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIGURATION))
    operator.stop()
    try:
        operator.start(next_image, f"--config={tmp_path / 'config.yaml'}")
        namespace.kubectl("scale", "rljob", "upgraded", "--replicas=2")  # the next one works
        namespace.wait_actors("upgraded", 2)
        after = namespace.uids("upgraded")
        assert {member: after[member] for member in before} == before
        assert namespace.job_status("upgraded")["restarts"] == {"counted": 0, "ignored": 0}

        namespace.kill_worker("upgraded", "actor-0")
        eventually(
            lambda: namespace.uids("upgraded").get("actor-0", before["actor-0"]) != before["actor-0"],
            "no pod follows the actor's",
            LONG_SECONDS,
            pause,
        )
        namespace.wait_actors("upgraded", 2)
        assert images(namespace, "upgraded") == dict.fromkeys(("learner", "actor-0", "actor-1"), first)
        assert look(namespace, "upgraded", "actor-0") == actor
        (policy,) = namespace.list("networkpolicies")
        readers = [each["namespaceSelector"]["matchLabels"] for each in policy["spec"]["ingress"][1]["from"]]
        assert CONFIGURATION["prometheusNamespaces"] in readers, "who reads the metrics counts at once"
        assert namespace.uids("upgraded")["learner"] == before["learner"]
        assert namespace.job_status("upgraded")["restarts"] == {"counted": 0, "ignored": 1}

        namespace.suspend("upgraded")
        namespace.resume("upgraded")
        namespace.wait_actors("upgraded", 2)
        assert images(namespace, "upgraded") == dict.fromkeys(("learner", "actor-0", "actor-1"), next_image)
        assert look(namespace, "upgraded", "actor-0") != actor
        (worker,) = look(namespace, "upgraded", "actor-0")["containers"]
        assert worker["resources"]["requests"]["ephemeral-storage"] == "1Mi", "what the job's manifest does not say"
    finally:
        operator.ensure_runs()
        namespace.delete_jobs()
        operator.stop()
