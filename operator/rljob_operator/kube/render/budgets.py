"""What a node's drain must ask for: the learner and the shards do not go by themselves while they are protected."""

from __future__ import annotations

from typing import Any

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import protected


def budgets(owned: Owned) -> list[dict[str, Any]]:
    """The PodDisruptionBudgets of the job.

    A number, never a percentage, which would be one of ``/scale``, and that counts actors. A pod that is not ready may go: it
    protects nothing.
    """
    shards = len(names.shards(owned.job))
    wanted = {Role.LEARNER: 1, **({Role.REPLAY: shards} if shards else {})}
    return [_budget(owned, role, count) for role, count in wanted.items() if protected(owned.job, role)]


def _budget(owned: Owned, role: Role, available: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owned.metadata(names.budget(owned.name, role)),
        "spec": {
            "minAvailable": available,
            "selector": {"matchLabels": names.role_labels(owned.name, role)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
