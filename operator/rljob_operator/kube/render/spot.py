"""What ``actors.spot: true`` puts into a pod, so that it may play on spot nodes, prefers them, and plays on once one is taken.

Each cloud marks its spot nodes in its own way. Where a node is tainted by default the pod needs a toleration, or it never gets
there; a label says which nodes to prefer. No cloud's marks mean anything on another, so all of them are put into every pod.
A preference is no demand: where there is no spot node with room, the pod goes elsewhere. Who wants nothing but spot nodes
writes their label into ``actors.nodeSelector``.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rljob_operator.kube.render.names import at


@dataclass(frozen=True, slots=True)
class SpotMarks:
    """How spot nodes are marked: (key, value) of their taints, all with effect NoSchedule, and of their labels."""

    taints: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]


CLOUDS: Final = SpotMarks(
    taints=(
        ("cloud.google.com/gke-spot", "true"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
    ),
    labels=(
        ("cloud.google.com/gke-spot", "true"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        ("eks.amazonaws.com/capacityType", "SPOT"),
        ("karpenter.sh/capacity-type", "spot"),
    ),
)
"""Taints of GKE and AKS; EKS and Karpenter put none. Labels of GKE, AKS, a managed node group of EKS, and Karpenter (EKS Auto
Mode is one)."""

WEIGHT: Final = 50
"""Weight of each preference, from 1 to 100: in the middle, so that preferences of the job's own can be put above it or below."""


PLAY_ON_SECONDS: Final = 10
"""An actor that is to leave plays on for so long, while the one in its place starts. Clouds give 30 seconds' notice and more, of
which a kubelet that shuts its node down may leave pods 15."""


def playing_on(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an actor's PodSpec that is told to leave ``PLAY_ON_SECONDS`` later, and may take as much longer.

    A pod can't know why it is to leave, so that one which the operator takes away plays on, too.
    """
    return {
        **pod,
        "terminationGracePeriodSeconds": pod["terminationGracePeriodSeconds"] + PLAY_ON_SECONDS,
        "containers": [
            {**each, "lifecycle": {"preStop": {"exec": {"command": ["sleep", f"{PLAY_ON_SECONDS}"]}}}}
            for each in pod["containers"]
        ],
    }


def on_spot_nodes(pod: Mapping[str, Any], marks: SpotMarks = CLOUDS) -> dict[str, Any]:
    """A copy of the PodSpec ``pod`` that tolerates the taints of spot nodes and prefers such nodes, beside what it had before.

    What a job has written there in a wrong form stays as it is, for the API server to refuse.
    """
    changed = copy.deepcopy(dict(pod))
    tolerations = at(changed, "tolerations", [])
    of_nodes = at(at(changed, "affinity", {}), "nodeAffinity", {})
    preferences = at(of_nodes, "preferredDuringSchedulingIgnoredDuringExecution", [])
    for key, value in marks.taints:
        wanted = {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
        if wanted not in tolerations:
            tolerations.append(wanted)
    for key, value in marks.labels:
        preferences.append(
            {"weight": WEIGHT, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}}
        )
    return changed
