"""When an operator says that it is ready: a leader at work, and a standby that could take over. A rollout waits for that."""

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import written
from tests.support.operator_roles import role_objects
from tests.support.ports import free_ports
from tests.support.waiting import eventually


class Replica:
    """``rljob operator`` for the jobs of one namespace, with its pages on a port of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log_file: Path, port: int) -> None:
        self.process, self._log_file, self.port = process, log_file, port

    def log(self) -> str:
        return self._log_file.read_text()

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, ""
        except OSError:
            return 0, ""  # it does not listen yet

    def until_ready(self, code: int, seconds: float = 60.0) -> None:
        eventually(lambda: self.page("/readyz")[0] == code, self.log, seconds)


@contextmanager
def replica(kubeconfig: Path, namespace: str, log_file: Path, *options: str) -> Iterator[Replica]:
    (port,) = free_ports(1)
    command = [
        sys.executable, "-m", "rljob_operator", "operator", f"--namespace={namespace}", f"--lease-namespace={namespace}",
        f"--kubeconfig={kubeconfig}", "--image=rl:1", "--plain-logs", f"--port={port}", *options,
    ]  # fmt: skip
    with log_file.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield Replica(process, log_file, port)
    finally:
        process.terminate()
        process.wait(30)


def grant(cluster: ControlPlane, namespace: str, objects: list[dict[str, Any]]) -> None:
    for each in objects:
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{each['kind'].lower()}s"
        cluster.create(path, each)


def test_a_standby_is_ready_once_it_could_take_over_and_a_leader_once_it_works(
    cluster: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    own = cluster.kubeconfig_for(tmp_path, {"token": cluster.token(namespace, "next")})
    lease_client, of_jobs = [], []
    for each in role_objects("next", namespace, [namespace]):
        (lease_client if each["metadata"]["name"] == "next-leader" else of_jobs).append(each)
    grant(cluster, namespace, lease_client)
    with (
        replica(cluster.kubeconfig, namespace, tmp_path / "old.log") as old,
        replica(own, namespace, tmp_path / "new.log") as new,
    ):
        old.until_ready(200)
        eventually(lambda: "no candidate for the lease: rljobs.rljob.dev is forbidden" in new.log(), new.log)
        assert (new.page("/healthz")[0], new.page("/readyz")[0]) == (200, 503), "it lives, and a rollout waits"
        grant(cluster, namespace, of_jobs)
        new.until_ready(200)
        assert "stands by: " in eventually(lambda: "stands by: " in new.log() and new.log(), new.log)
        assert "\nrljob_operator_leader 0.0" in new.page("/metrics")[1]
        assert "\nrljob_operator_leader 1.0" in old.page("/metrics")[1]
        old.process.terminate()
        eventually(lambda: " leads" in new.log(), new.log, 10.0)
        new.until_ready(200)
        with cluster.hanging():
            new.until_ready(503, 20.0)


def test_one_namespace_that_may_not_be_read_stops_no_other(
    cluster: ControlPlane, namespace: str, other_namespace: str, tmp_path: Path
) -> None:
    """As where it, or the RoleBinding in it, was deleted."""
    own = cluster.kubeconfig_for(tmp_path, {"token": cluster.token(namespace, "operator")})
    grant(cluster, namespace, role_objects("operator", namespace, [namespace]))
    with replica(own, namespace, tmp_path / "log", f"--namespace={other_namespace}") as it:
        it.until_ready(200)
        cluster.create(f"/apis/rljob.dev/v1alpha1/namespaces/{namespace}/rljobs", written(namespace, "pong"))
        path = f"/apis/rljob.dev/v1alpha1/namespaces/{namespace}/rljobs/pong"
        eventually(lambda: cluster.request("GET", path)[1].get("status"), it.log)
        readable = it.page("/metrics")[1]
        assert f'rljob_operator_namespace_readable{{namespace="{namespace}"}} 1.0' in readable
        assert f'rljob_operator_namespace_readable{{namespace="{other_namespace}"}} 0.0' in readable
        assert f"RLJobs in {other_namespace} can't be listed: rljobs.rljob.dev is forbidden" in it.log()
        assert (it.page("/healthz")[0], it.page("/readyz")[0]) == (200, 200)
