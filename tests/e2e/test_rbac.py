"""The operator under a ServiceAccount with the rights of the table: none is missing, and none is granted that it has no use for.

The API server's audit log is the witness: ``RLJOB_KUBE_AUDIT`` names its file, JSON lines at level Metadata or above.
"""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from rljob_operator.kube.process import rbac

from tests.e2e.cluster import LONG_SECONDS, Namespace, apex, checkpoint_claim, endless, made_namespace, pause
from tests.e2e.operator_process import PREFIX, OperatorProcess, operator_of
from tests.support.operator_roles import role_objects
from tests.support.waiting import eventually

VARIABLE = "RLJOB_KUBE_AUDIT"
ACCOUNT = "operator"


class Right(NamedTuple):
    """One verb on one resource, with its subresource behind a slash."""

    group: str
    resource: str
    verb: str


UNUSED = {
    Right(
        "rljob.dev", "rljobs/finalizers", "update"
    ): "is looked up, not used: by a server that guards blockOwnerDeletion",
    Right("rljob.dev", "rlexperiments/finalizers", "update"): "the same",
    Right("rljob.dev", "rlexperiments/status", "patch"): "for experiments, of which there is none here",
    Right("rljob.dev", "rljobs", "create"): "the same",
    Right("rljob.dev", "rljobs", "patch"): "the same",
    Right("", "pods", "get"): "asks whose a name is: of a pod whose creation was not answered",
    Right("events.k8s.io", "events", "patch"): "an event that comes again within minutes counts the first one up",
}
"""What a job's ordinary life may pass without, and what it is for."""
PROBES = {
    "list /api/v1/nodes?limit=500": "whether nodes may be read, which an operator of single namespaces may well not"
}
"""What it asks to find out whether it may, and does without where it may not."""


@pytest.fixture(scope="module")
def audit_log() -> Path:
    found = os.environ.get(VARIABLE, "")
    if not found:
        pytest.skip(f"{VARIABLE} is not set: the API server's audit log (docs/testing-on-kubernetes.md)")
    return Path(found)


@pytest.fixture(scope="module")
def bare_namespace(kubeconfig: Path) -> Iterator[Namespace]:
    """One with a ServiceAccount that has the operator's rights there and no others."""
    with made_namespace(kubeconfig) as namespace:
        namespace.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}})
        namespace.apply(*role_objects(ACCOUNT, namespace.name, [namespace.name]))
        yield namespace


@pytest.fixture(scope="module")
def operator(
    bare_namespace: Namespace, audit_log: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator that logs in as the ServiceAccount."""
    folder = tmp_path_factory.mktemp("operator")
    login = folder / "kubeconfig"
    login.write_text(yaml.safe_dump(as_account(bare_namespace)))
    login.chmod(0o600)
    with operator_of(bare_namespace, folder / "log", f"--kubeconfig={login}") as process:
        yield process


def as_account(namespace: Namespace) -> dict[str, object]:
    """The kubeconfig that the operator would have had, with the account's token in the place of its user."""
    words = (word.partition("=") for word in shlex.split(os.environ.get(PREFIX, "")))
    file = next((value for name, _, value in words if name == "KUBECONFIG"), str(namespace.kubeconfig))
    found = dict(yaml.safe_load(Path(file).read_text()))
    token = namespace.kubectl("create", "token", ACCOUNT, "--duration=1h").strip()
    (context,) = [each["context"] for each in found["contexts"] if each["name"] == found["current-context"]]
    found["users"] = [{"name": context["user"], "user": {"token": token}}]
    return found


def asked(namespace: Namespace, audit_log: Path) -> tuple[set[Right], list[str]]:
    """(what the account was let do, what it was refused)."""
    user = f"system:serviceaccount:{namespace.name}:{ACCOUNT}"
    used, refused = set(), []
    for line in audit_log.read_text().splitlines():
        if user not in line:
            continue
        event = json.loads(line)
        about = event.get("objectRef")
        if event["user"]["username"] != user or about is None:
            continue
        if event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid":
            refused.append(f"{event['verb']} {event['requestURI']}")
            continue
        parts = [about["resource"], *([about["subresource"]] if "subresource" in about else [])]
        used.add(Right(about.get("apiGroup", ""), "/".join(parts), event["verb"]))
    return used, refused


def granted() -> set[Right]:
    return {
        Right(grant.group, resource, verb)
        for grant in rbac.TABLE
        if grant.where in ("Jobs", "Operator")
        for resource in grant.resources
        for verb in grant.verbs
    }


def test_a_jobs_life_needs_what_the_table_grants_and_no_more(
    namespace: Namespace, operator: OperatorProcess, audit_log: Path
) -> None:
    one_shard = {**apex()["spec"]["replay"], "shards": 1}
    namespace.train(checkpoint_claim(), apex("walked", replay=one_shard))
    namespace.wait_for("walked", "CheckpointValid", "True", "Verified")
    operator.stop()
    operator.start()  # this one finds what the first one has made
    namespace.kubectl("scale", "rljob", "walked", "--replicas=3")
    namespace.wait_actors("walked", 3)
    namespace.kubectl("scale", "rljob", "walked", "--replicas=1")
    namespace.wait_actors("walked", 1)

    namespace.suspend("walked", network={"policy": "Disabled"})
    namespace.resume("walked")
    assert not namespace.list("networkpolicies")
    namespace.apply(endless("short", successPolicy={"rawFrames": 1000}, ttlSecondsAfterFinished=1))
    eventually(lambda: namespace.get("rljob", "short") is None, "it outlives its time", LONG_SECONDS, pause)
    namespace.kubectl("delete", "rljob", "walked")
    namespace.wait_empty()
    external = {**one_shard, "redis": {"external": {"url": "redis://nobody.example:6379"}}}
    namespace.apply(apex("elsewhere", replay=external))
    eventually(lambda: namespace.all_pods("elsewhere"), "it has no pod", LONG_SECONDS, pause)
    namespace.kubectl("delete", "rljob", "elsewhere")
    eventually(lambda: namespace.list("jobs"), "nothing removes its log", LONG_SECONDS, pause)
    namespace.kubectl("delete", "jobs", "--all")
    namespace.wait_empty()

    used, refused = asked(namespace, audit_log)
    assert used, f"{audit_log} tells nothing of the operator's account"
    assert set(refused) <= PROBES.keys()
    assert used <= granted(), "it was let in by another grant than its own"
    assert sorted(granted() - used - UNUSED.keys()) == []
