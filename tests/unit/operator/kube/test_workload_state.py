"""What is written back into a Workload of Kueue."""

from __future__ import annotations

from typing import Any

import pytest
from rljob_operator.kube.job.workload_state import without_quota

THEN, NOW = "2026-11-24T20:00:00Z", 1795550400.0


def evicted(reason: str) -> dict[str, Any]:
    """A Workload that ran and is evicted; Kueue has not got its quota back."""
    true = {"QuotaReserved": "Admitted", "Admitted": "Admitted", "PodsReady": "Started", "Evicted": reason}
    conditions = [
        {"type": kind, "status": "True", "reason": why, "message": "words", "lastTransitionTime": THEN}
        for kind, why in true.items()
    ]
    return {"metadata": {"name": "pong", "generation": 1}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("reason", "at_once"),
    [
        ("Preempted", True),
        ("NodeFailures", True),
        ("AdmissionCheck", False),
        ("PodsReadyTimeout", False),
        ("Deactivated", False),
        ("ClusterQueueStopped", False),
        ("LocalQueueStopped", False),
    ],
)
def test_an_evicted_workload_queues_again_at_once_or_when_kueue_says_so(reason: str, at_once: bool) -> None:
    """As Kueue does with the jobs that it knows: a backoff that it has set is not cut short."""
    written = without_quota(evicted(reason), NOW)["status"]
    said = {each["type"]: (each["status"], each["reason"]) for each in written["conditions"]}
    assert said == {
        "Evicted": ("True", reason),
        "QuotaReserved": ("False", "Pending"),
        "Admitted": ("False", "NoReservation"),
        "Requeued": (str(at_once), reason),
        "PodsReady": ("False", "WaitForStart"),
    }
    assert written["admission"] is None
