"""A program that serves external.metrics.k8s.io from the figures of one operator, as an adapter in front of Prometheus would.

    python metrics_adapter.py PORT CERTIFICATE METRICS_URL

It runs where the operator runs, near the API server and the operator's figures. CERTIFICATE holds key and chain.
"""

import json
import ssl
import sys
import urllib.request
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client.parser import text_string_to_metric_families

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
ROOT = f"/apis/{GROUP_VERSION}"
METRIC = "rljob_operator_recommended_actors"


def values(metrics: str, namespace: str, selector: str) -> list[dict[str, Any]]:
    """The items of an ExternalMetricValueList: of the figures of a namespace those whose labels are as the selector says."""
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part) | {"namespace": namespace}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        {"metricName": METRIC, "metricLabels": dict(sample.labels), "timestamp": now, "value": f"{sample.value:g}"}
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == METRIC and wanted.items() <= sample.labels.items()
    ]


def answer(path: str, metrics_url: str) -> dict[str, Any] | None:
    """The document at a path; None where there is none."""
    where = urlsplit(path)
    if where.path == ROOT:
        resource = {"name": METRIC, "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": [resource]}
    parts = where.path.removeprefix(f"{ROOT}/").split("/")
    if not where.path.startswith(f"{ROOT}/namespaces/") or len(parts) != 3 or parts[2] != METRIC:
        return None
    with urllib.request.urlopen(metrics_url, timeout=5) as response:
        metrics = response.read().decode()
    items = values(metrics, parts[1], parse_qs(where.query).get("labelSelector", [""])[0])
    return {"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": items}


class Handler(BaseHTTPRequestHandler):
    """Answers GET."""

    metrics_url = ""

    def do_GET(self) -> None:
        found = answer(self.path, self.metrics_url)
        body = json.dumps(found if found is not None else {"kind": "Status", "code": 404}).encode()
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(port: int, certificate: str, metrics_url: str) -> None:
    """Serve until the process is ended."""
    Handler.metrics_url = metrics_url
    server = ThreadingHTTPServer(("0.0.0.0", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
