"""How soon a job says what happened to it, and what a job at rest asks of the API server.

Needs what tests/e2e need (docs/testing-on-kubernetes.md).

    python -m benchmarks.told_on_the_job                 # each event once, then two minutes of one job that trains
    python -m benchmarks.told_on_the_job --only quota,gate --rest-seconds 0

Seconds from the event to the first condition of the job whose reason or message has the word that names the event; "never" after
`LONGEST_SECONDS`. While the job is at rest: requests to the API group rljob.dev and to events, by verb, as the API server
counts them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.cluster import KubectlFailed, Namespace, endless, made_namespace, requests
from tests.e2e.operator_process import OperatorProcess

LONGEST_SECONDS = 90.0
LOOK_SECONDS = 0.25
Object = dict[str, Any]
Act = Callable[[Namespace], None]


class Event(NamedTuple):
    """``begin`` is done to a namespace with the job that trains, unless ``job`` is a job of its own, which is then made."""

    name: str
    word: str
    job: Object | None = None
    begin: Act = lambda namespace: None
    end: Act = lambda namespace: None


def learner(**fields: Any) -> Object:
    return {**requests(), **fields}


QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "1"}}}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
FAILING = {
    "name": "bucket",
    "image": os.environ.get("RLJOB_E2E_IMAGE", ""),
    "command": ["sh", "-c", "echo bucket not found; exit 3"],
    "terminationMessagePolicy": "FallbackToLogsOnError",
    "securityContext": RESTRICTED,
}
SECRET = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "no-such-secret", "key": "token"}}}]
LARGE = {"id": "CartPole-v1", "kwargs": {"a": "x" * 700_000}}
BEHIND_A_GATE = {"spec": {"schedulingGates": [{"name": "example.com/paid"}]}}


def webhook(namespace: Namespace) -> Object:
    """One that pods of the namespace have to pass, and that nothing answers."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": "away.example.com",
        "clientConfig": {"service": {"namespace": namespace.name, "name": "no-such-service"}},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}},
    }
    about = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return {**about, "metadata": {"name": f"away-{namespace.name}"}, "webhooks": [hook]}


def hook_comes(namespace: Namespace) -> None:
    namespace.apply(webhook(namespace))
    time.sleep(2.0)  # until every server knows of it


def hook_goes(namespace: Namespace) -> None:
    namespace.kubectl("delete", "validatingwebhookconfiguration", webhook(namespace)["metadata"]["name"])


def actor_goes_behind_the_hook(namespace: Namespace) -> None:
    hook_comes(namespace)
    namespace.kubectl("delete", "pod", "--force", f"--selector=rljob.dev/job={STEADY},rljob.dev/role=actor")


STEADY = "steady"
EVENTS = [
    Event("image that is missing", "no-such-image", endless("image", image="no-such-image:1")),
    Event("Secret that is missing", "no-such-secret", endless("secret", learner=learner(env=SECRET))),
    Event("scheduling gate", "example.com/paid|SchedulingGated", endless("gate", learner=learner(podTemplate=BEHIND_A_GATE))),
    Event("no node", "nodes are available", endless("place", learner=learner(nodeSelector={"no": "such"}))),
    Event(
        "quota", "exceeded quota", endless("quota"),
        lambda namespace: namespace.apply(QUOTA), lambda namespace: namespace.kubectl("delete", "quota", "none"),
    ),
    Event(
        "init container that fails", "bucket not found",
        endless("init", learner=learner(podTemplate={"spec": {"initContainers": [FAILING]}})),
    ),
    Event(
        "claim that is missing", "no-such-claim",
        endless("claim", checkpoint={"storage": {"persistentVolumeClaim": {"claimName": "no-such-claim"}}}),
    ),
    Event("spec too large", "InvalidSpec|too large", endless("large", environment=LARGE)),
    Event("webhook away, a new job", "away.example.com", endless("hook"), hook_comes, hook_goes),
    Event("webhook away, a job that runs", "away.example.com", None, actor_goes_behind_the_hook, hook_goes),
]  # fmt: skip


def said(namespace: Namespace, job: str) -> str:
    found = namespace.job_status(job).get("conditions") or ()
    return "\n".join(f"{each['type']}={each['status']} {each['reason']} {each.get('message', '')}" for each in found)


def seconds_until_told(namespace: Namespace, event: Event) -> str:
    """And the condition that told it."""
    job = STEADY if event.job is None else str(event.job["metadata"]["name"])
    try:
        if event.job is None:
            began = time.monotonic()
            event.begin(namespace)
        else:
            event.begin(namespace)
            began = time.monotonic()
            try:
                namespace.kubectl("create", "-f", "-", stdin=json.dumps(event.job))
            except KubectlFailed as problem:
                return f"refused by the API server: {str(problem)[-120:]}"
        while time.monotonic() - began < LONGEST_SECONDS:
            for line in said(namespace, job).splitlines():
                if re.search(event.word, line):
                    return f"{time.monotonic() - began:5.1f} s  {line[:110]}"
            time.sleep(LOOK_SECONDS)
        return f"never (after {LONGEST_SECONDS:.0f} s; " + said(namespace, job).replace("\n", "; ")[:400] + ")"
    finally:
        event.end(namespace)
        if event.job is not None:
            namespace.kubectl("delete", "rljob", job, "--ignore-not-found", "--wait=false")


def asked(namespace: Namespace) -> Counter[str]:
    """Requests that the API server has answered so far, by verb and resource, of the groups that the operator alone uses."""
    found: Counter[str] = Counter()
    pattern = re.compile(r"apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)")
    for match in pattern.finditer(namespace.kubectl("get", "--raw", "/metrics")):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', match["labels"]))
        if labels["group"] in ("rljob.dev", "events.k8s.io"):
            found[f"{labels['verb']} {labels['resource']}/{labels['subresource']}".rstrip("/")] += int(
                float(match["count"])
            )
    return found


def show_rest(namespace: Namespace, seconds: float) -> None:
    before = asked(namespace)
    time.sleep(seconds)
    # Our own looks at jobs are none of them: there are none between the two.
    rest = {what: count for what, count in (asked(namespace) - before).items() if not what.startswith("WATCH")}
    total = sum(rest.values()) * 60 / seconds
    print(f"at rest, {seconds:.0f} s: {total:.1f} requests a minute: {dict(sorted(rest.items()))}", flush=True)


@contextmanager
def at_work(namespace: Namespace, scratch: Path) -> Iterator[None]:
    process = OperatorProcess(namespace, scratch / "log")
    try:
        process.start()
        yield
        namespace.delete_jobs()
        process.stop()
    finally:
        process.end_all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="words of events' names, with commas between them")
    parser.add_argument("--rest-seconds", type=float, default=120.0)
    wanted = parser.parse_args()
    words = [word for word in wanted.only.split(",") if word]
    kubeconfig = Path(os.environ["RLJOB_E2E_KUBECONFIG"]).absolute()
    with (
        made_namespace(kubeconfig) as namespace,
        tempfile.TemporaryDirectory() as scratch,
        at_work(namespace, Path(scratch)),
    ):
        namespace.apply(endless(STEADY))
        namespace.wait_for(STEADY, "Ready", "True")
        for event in EVENTS:
            if not words or any(word in event.name for word in words):
                print(f"{event.name:30} {seconds_until_told(namespace, event)}", flush=True)
        if wanted.rest_seconds:
            namespace.wait_for(STEADY, "Ready", "True", "Running")
            time.sleep(40.0)  # until what the last event moved is at rest
            show_rest(namespace, wanted.rest_seconds)


if __name__ == "__main__":
    main()
