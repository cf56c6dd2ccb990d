"""A release of the chart on the cluster, as a user of Helm sees it."""

import re
import shlex
from pathlib import Path
from typing import Any

from tests.e2e.cluster import LONG_SECONDS, Namespace
from tests.support.chart import CHART, Chart, HelmRefused

RELEASE = "e2e"
NAME = f"{RELEASE}-rljob-operator"
OWNED = f"app.kubernetes.io/instance={RELEASE}"
PODS = f"{OWNED},app.kubernetes.io/name=rljob-operator"
OF_THE_CLUSTER = "clusterroles,clusterrolebindings"
OF_THE_NAMESPACE = "deployments,pods,services,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,jobs"


class Release:
    """The release in a namespace of its own; not installed yet."""

    def __init__(self, chart: Chart, namespace: Namespace, operator_image: str, worker_image: str) -> None:
        self._chart, self.namespace = chart, namespace
        self._values: dict[str, Any] = {
            **images(operator_image, worker_image),
            "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}},
            "logFormat": "Plain",
        }

    def helm(self, verb: str, *words: str, values: dict[str, Any] | None = None) -> str:
        place = (f"--kubeconfig={self.namespace.kubeconfig}", f"--namespace={self.namespace.name}")
        return self._chart.run(verb, RELEASE, *words, *place, values=values)

    def install(self, chart: Path = CHART) -> None:
        """Where the CRD belongs to another owner, with the commands that the refusal tells."""
        try:
            self.helm("install", str(chart), values=self._values)
        except HelmRefused as refused:
            for command in re.findall(r"^ +kubectl (.*)$", str(refused), re.MULTILINE):
                self.namespace.kubectl(*shlex.split(command))
            self.helm("install", str(chart), values=self._values)

    def upgrade(self, **values: Any) -> None:
        """To the chart of this tree."""
        self._values |= values
        self.helm("upgrade", str(CHART), values=self._values)

    def wait_rolled_out(self) -> None:
        self.namespace.kubectl("rollout", "status", f"deployment/{NAME}", f"--timeout={LONG_SECONDS:.0f}s")

    def pods(self) -> dict[str, dict[str, Any]]:
        return {pod["metadata"]["uid"]: pod for pod in self.namespace.list("pods", PODS)}

    def left(self) -> list[str]:
        """Everything of the release that is still there."""
        found = [*self.namespace.list(OF_THE_NAMESPACE, OWNED), *self.namespace.list(OF_THE_CLUSTER, OWNED)]
        return [f"{each['kind']}/{each['metadata']['name']}" for each in found]


def images(operator_image: str, worker_image: str) -> dict[str, Any]:
    """The values that name them."""
    repository, _, tag = operator_image.rpartition(":")
    return {"image": {"repository": repository, "tag": tag}, "config": {"image": worker_image}}
