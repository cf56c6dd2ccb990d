"""A user at a terminal who types verbs about jobs of a real API server."""

import json
import time
from pathlib import Path
from typing import Any

from click.testing import Result
from rljob.api.status_model import rfc3339
from rljob_operator import cli
from rljob_operator.kube.apiserver.resources import RLJOBS
from typer.testing import CliRunner

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import written


def five_minutes_ago() -> str:
    """Asked for where it is written: between a module's import and its tests may lie half an hour."""
    return rfc3339(time.time() - 300)


def said(kind: str, value: str, reason: str, message: str = "") -> dict[str, Any]:
    """A condition that has held for five minutes."""
    since = five_minutes_ago()
    return {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": since}


def status(**more: Any) -> dict[str, Any]:
    """The status of a job that runs."""
    since = five_minutes_ago()
    return {
        "observedGeneration": 1,
        "startTime": since,
        "actors": {"replicas": 2, "ready": 2},
        "learner": {"ready": True, "nodeName": "cpu-1"},
        "autoscaling": {"desiredReplicas": 2, "lastDecision": "178 / 36 = 4.9 wanted: 2 -> 2 actors"},
        "progress": {"learnerUpdates": 1500, "evalReturn": "17.5", "queueFillPercent": 40, "policyLagUpdates": 12},
        "conditions": [said("Ready", "True", "Running")],
        **more,
    }  # fmt: skip


class User:
    """A user at a terminal, in a namespace with jobs."""

    def __init__(self, cluster: ControlPlane, namespace: str, kubeconfig: Path) -> None:
        self.cluster, self.namespace, self.kubeconfig = cluster, namespace, kubeconfig

    def types(self, verb: str, *words: str, where: tuple[str, ...] | None = None) -> Result:
        place = ("-n", self.namespace) if where is None else where
        return CliRunner().invoke(
            cli.app, [verb, *place, *words], env={"KUBECONFIG": str(self.kubeconfig), "COLUMNS": "200"}
        )

    def sees(self, verb: str, *words: str, where: tuple[str, ...] | None = None) -> str:
        result = self.types(verb, *words, where=where)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refused(self, code: int, verb: str, *words: str, where: tuple[str, ...] | None = None) -> str:
        """The one line that is said then."""
        result = self.types(verb, *words, where=where)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert "Traceback" not in line
        return line.removeprefix("rljob: ")

    def path(self, name: str = "") -> str:
        return RLJOBS.path(self.namespace, name or None)

    def has(self, name: str, known: dict[str, Any] | None = None, **spec: Any) -> None:
        """A job, with a status unless ``known`` is empty."""
        self.cluster.create(self.path(), written(self.namespace, name, **spec))
        known = status() if known is None else known
        if known:
            self.cluster.change(f"{self.path(name)}/status", {"status": known})

    def stored(self, name: str) -> dict[str, Any]:
        return self.cluster.request("GET", self.path(name))[1]


def changed_kubeconfig(user: User, folder: Path, *, server: str = "", namespace: str = "") -> Path:
    """The user's own with another server, or a namespace in its context."""
    config = json.loads(user.kubeconfig.read_text())
    login = config["users"][0]["user"]
    config["users"][0]["user"] = {name: str(user.kubeconfig.parent / file) for name, file in login.items()}
    if server:
        config["clusters"][0]["cluster"]["server"] = server
    if namespace:
        config["contexts"][0]["context"]["namespace"] = namespace
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path
