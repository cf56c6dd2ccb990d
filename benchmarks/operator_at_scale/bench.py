"""What every part of the benchmark is given, and how figures are summed up."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil
from rljob_operator.kube.apiserver.client import Client

from benchmarks.operator_at_scale.process import Learners, Operator

Figures = dict[str, Any]
AT_ONCE = 16
"""Requests of the benchmark itself that are under way at the same time."""
CONTROL_PLANE = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kwok")


@dataclass(frozen=True, slots=True)
class Bench:
    """Namespaces with an operator, and jobs to be made in them.

    Attributes:
        namespaces: where jobs are made in turns; what works on single jobs uses the first alone.
        learners: the stand-in that answers for all learners; None where nothing answers.
        jobs: how many there are to be at once.
    """

    client: Client
    namespaces: tuple[str, ...]
    operator: Operator
    learners: Learners | None
    jobs: int

    @property
    def namespace(self) -> str:
        """The first one."""
        return self.namespaces[0]

    @property
    def scope(self) -> str | None:
        """What to follow in order to see all of them: the only one, or the whole cluster."""
        return self.namespace if len(self.namespaces) == 1 else None


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def spread(values: Sequence[float]) -> Figures:
    """Median, p99 and the longest, in seconds."""
    return {
        "median_seconds": statistics.median(values),
        "p99_seconds": quantile(values, 0.99),
        "longest_seconds": max(values),
    }


def memory_mb(figures: dict[str, float]) -> float:
    """The operator's resident memory, in MB of a million bytes."""
    return figures["process_resident_memory_bytes"] / 1e6


def control_plane_seconds() -> dict[str, float]:
    """Processor time that each program of the control plane has taken so far, of those that share this network namespace."""
    found: dict[str, float] = {}
    here = os.readlink("/proc/self/ns/net")
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error, OSError):
            if process.info["name"] in CONTROL_PLANE and os.readlink(f"/proc/{process.pid}/ns/net") == here:
                times = process.cpu_times()
                found[process.info["name"]] = times.user + times.system
    return found


def load() -> float:
    """How many processes wanted a core, on average of the last minute."""
    return os.getloadavg()[0]
