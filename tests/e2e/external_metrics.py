"""external.metrics.k8s.io for the time of a test: APIService, Service and server, with keys made for it."""

import base64
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.e2e.cluster import LONG_SECONDS, Namespace, pause
from tests.e2e.operator_process import PREFIX
from tests.support.waiting import eventually

ADDRESS = "RLJOB_E2E_ADDRESS"
"""Where the API server reaches a program that was started by the words of `PREFIX`."""
NAME = "external-metrics"
API_SERVICE = "v1beta1.external.metrics.k8s.io"
PORT = 18443


@contextmanager
def served(namespace: Namespace, metrics_url: str, folder: Path) -> Iterator[None]:
    """The recommendations that the operator exports at ``metrics_url`` are external metrics of the cluster."""
    address = os.environ.get(ADDRESS)
    if not address:
        pytest.skip(f"{ADDRESS} is not set: where the API server reaches the tests (docs/testing-on-kubernetes.md)")
    authority = trustme.CA()
    certificate = folder / "certificate.pem"
    certificate.write_bytes(authority.issue_cert(f"{NAME}.{namespace.name}.svc").private_key_and_cert_chain_pem.bytes())
    program = Path(__file__).with_name("metrics_adapter.py")
    command = [*shlex.split(os.environ.get(PREFIX, "")), sys.executable, str(program)]
    with (folder / "adapter.log").open("wb") as output:
        process = subprocess.Popen(
            [*command, str(PORT), str(certificate), metrics_url], stdout=output, stderr=subprocess.STDOUT
        )
    before = namespace.get("apiservice", API_SERVICE)  # as of KEDA
    try:
        namespace.apply(*_objects(namespace.name, address, authority.cert_pem.bytes()))
        eventually(lambda: _available(namespace), lambda: namespace.get("apiservice", API_SERVICE), LONG_SECONDS, pause)
        yield
    finally:
        namespace.kubectl("delete", "apiservice", API_SERVICE, "--ignore-not-found")
        if before is not None:
            about = {name: before["metadata"].get(name) for name in ("name", "labels", "annotations")}
            namespace.apply({**before, "metadata": about, "status": {}})
        process.kill()
        process.wait(60)


def _available(namespace: Namespace) -> bool:
    conditions = ((namespace.get("apiservice", API_SERVICE) or {}).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


def _objects(namespace: str, address: str, authority: bytes) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME},
            "spec": {"ports": [{"port": 443, "targetPort": PORT}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address]}],
            "ports": [{"port": PORT}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": base64.b64encode(authority).decode(),
                "service": {"name": NAME, "namespace": namespace},
            },
        },
    ]
