"""Nodes of the cluster as who runs them treats them: drained, cut off, without a kubelet."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.cluster import LONG_SECONDS, Namespace, pause
from tests.support.waiting import eventually

FAULT = "RLJOB_E2E_FAULT"
"""The words of this variable become the command that takes NODE PART STATE: ``cpu-1 kubelet off``, ``cpu-1 network on``."""
DRAIN_SECONDS = 180


@contextmanager
def without(namespace: Namespace, node: str, *parts: str) -> Iterator[None]:
    """The node without its ``kubelet``, its ``network`` or both, and with them again afterwards."""
    command = shlex.split(os.environ.get(FAULT, ""))
    if not command:
        pytest.skip(f"{FAULT} is not set: what takes a part of a node away (docs/testing-on-kubernetes.md)")
    try:
        for part in parts:
            subprocess.run([*command, node, part, "off"], check=True)
        yield
    finally:
        for part in reversed(parts):
            subprocess.run([*command, node, part, "on"], check=True)
        wait_ready(namespace, node, "True")


@contextmanager
def gone(namespace: Namespace, node: str) -> Iterator[None]:
    """The node as one that was taken away for good: nothing on it is heard of, and it is deleted. Afterwards it is a new one of
    the same name."""
    with without(namespace, node, "kubelet", "network"):
        namespace.kubectl("delete", "node", node)
        yield


@contextmanager
def drained(namespace: Namespace, node: str) -> Iterator[None]:
    """The node empty and closed; the drain has ended by itself."""
    words = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={DRAIN_SECONDS}s")
    try:
        namespace.kubectl("drain", node, *words, seconds=DRAIN_SECONDS + 30)
        yield
    finally:
        namespace.kubectl("uncordon", node)


def ready(namespace: Namespace, node: str) -> dict[str, Any]:
    """The node's condition Ready."""
    conditions = ((namespace.get("node", node) or {}).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Ready"), {"status": "there is no such node"})


def wait_ready(namespace: Namespace, node: str, status: str) -> dict[str, Any]:
    """The node's condition Ready, once it is True, False or Unknown."""
    eventually(
        lambda: ready(namespace, node)["status"] == status,
        lambda: f"{node} is {ready(namespace, node)}, not {status}",
        LONG_SECONDS,
        pause,
    )
    return ready(namespace, node)
