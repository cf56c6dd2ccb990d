"""The metrics of each role: what is declared is exported, and what a process takes, told of real sockets, children and files."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rljob.telemetry import process
from rljob.telemetry.catalogue import PROCESS, ROLES, Metric
from rljob.telemetry.metrics import markdown, role_registry
from rljob.telemetry.process import ProcessUse, core_wait_seconds, cpu_seconds, thread_times

from tests.support.paths import ROOT
from tests.support.waiting import repeating

TEXTS = ("state", "limiter/blocked", "checkpoint/state", "durability")
"""Paths at which a word stands."""
PROCESS_NAMES = {
    "rljob_rss_bytes", "rljob_shm_bytes", "rljob_cpu_seconds", "rljob_open_files", "rljob_socket_receive_queue_bytes",
    "rljob_socket_send_queue_bytes", "rljob_start_time_seconds", "rljob_core_wait_cores",
}  # fmt: skip
PAGE = ROOT / "docs" / "metrics.md"


def full_status(role: str) -> dict[str, Any]:
    """A status document in which every declared path has a value."""
    status: dict[str, Any] = {"role": role, "name": f"{role}-0", "state": "Training"}
    for number, metric in enumerate((*ROLES[role], PROCESS[-1]), start=1):
        *parents, last = metric.path.split("/")
        node = status
        for key in parents:
            node = node.setdefault(key, {})
        if metric.kind == "histogram":
            node[last] = {"bounds": [1, 10], "counts": [3, 2, 1], "sum": 42.0}
        elif metric.label and metric.path not in TEXTS:
            node.setdefault(last, {})["some"] = float(number)
        elif metric.label:
            node[last] = "samples"
        else:
            node[last] = float(number)
    return status


def scrape(role: str, status: dict[str, Any]) -> dict[str, Any]:
    text = generate_latest(role_registry(role, lambda: status)).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def family_name(metric: Metric) -> str:
    return metric.full_name.removesuffix("_total") if metric.kind == "counter" else metric.full_name


@pytest.mark.parametrize("role", ROLES)
def test_every_declared_metric_is_exported_and_no_other(role: str) -> None:
    families = scrape(role, full_status(role))
    assert set(families) == {family_name(metric) for metric in (*ROLES[role], *PROCESS)}
    for metric in ROLES[role]:
        family = families[family_name(metric)]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        labels = {"role", metric.label} - {"", None}
        assert all(labels <= sample.labels.keys() and sample.labels["role"] == role for sample in family.samples)


@pytest.mark.parametrize("role", ROLES)
def test_an_empty_or_odd_status_exports_only_the_process(role: str) -> None:
    assert set(scrape(role, {})) == PROCESS_NAMES
    odd = {
        "stages": 3,
        "limiter": None,
        "redis": [],
        "state": None,
        "steps": "7",
        "loss": float("nan"),
        "refused": None,
    }
    assert set(scrape(role, odd)) == PROCESS_NAMES


def test_values_labels_and_buckets() -> None:
    actor = scrape("actor", {"name": "actor-3", "steps": 12, "stages": {"env": 1.5}, "refused": {"size": 2}})
    sample = actor["rljob_env_steps"].samples[0]
    assert (sample.name, sample.labels, sample.value) == (
        "rljob_env_steps_total", {"role": "actor", "actor": "actor-3"}, 12.0,
    )  # fmt: skip
    stage, refused = (actor[f"rljob_{name}"].samples[0].labels for name in ("stage_seconds", "chunks_refused"))
    assert (stage, refused["reason"]) == ({"role": "actor", "actor": "actor-3", "stage": "env"}, "size")
    replay = scrape("replay", {"service": "replay-1", "durable": False, "limiter": {"blocked": "inserts"}})
    durable, blocked = (replay[f"rljob_{name}"].samples[0] for name in ("replay_durable", "limiter_blocked"))
    assert (durable.value, blocked.labels) == (0.0, {"role": "replay", "shard": "replay-1", "side": "inserts"})
    lag = scrape("learner", {"policy_lag_histogram": {"bounds": [1, 10], "counts": [3, 2, 1], "sum": 42}})
    buckets = {s.labels.get("le"): s.value for s in lag["rljob_policy_lag_bucket_updates"].samples if "le" in s.labels}
    assert buckets == {"1": 3.0, "10": 5.0, "+Inf": 6.0}


def test_a_start_is_told_and_a_checkpoint_only_once_there_is_one() -> None:
    before = time.time()
    families = scrape("learner", {"checkpoint": {"written_unix": None, "interval_seconds": 300}})
    assert before <= families["rljob_start_time_seconds"].samples[0].value <= time.time()
    assert families["rljob_checkpoint_interval_seconds"].samples[0].value == 300.0
    assert "rljob_checkpoint_written_timestamp_seconds" not in families
    written = scrape("learner", {"checkpoint": {"written_unix": 1790000000.5}})
    assert written["rljob_checkpoint_written_timestamp_seconds"].samples[0].value == 1790000000.5
    off = scrape("replay", {"durability": "Off"})["rljob_replay_durability"].samples[0]
    assert (off.labels["durability"], off.value) == ("Off", 1.0)


def test_declarations_are_sound() -> None:
    for role, metrics in ROLES.items():
        names = [metric.name for metric in (*metrics, *PROCESS)]
        assert len(names) == len(set(names)), role
        for metric in metrics:
            assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
            assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
            assert (metric.help[-1], metric.label in ("role", role)) == (".", False), metric.name


def test_the_page_lists_exactly_what_is_declared() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m rljob.telemetry.metrics > docs/metrics.md"
    listed = set(re.findall(r"^- `(rljob_\w+)(?:\{\w+\})?`: ", PAGE.read_text(), re.MULTILINE))
    assert listed == {metric.full_name for metrics in (*ROLES.values(), PROCESS) for metric in metrics}


# What a process takes, told of real sockets, children and files.

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_bytes_that_wait_in_sockets_and_open_files_are_counted() -> None:
    before = ProcessUse().now()
    near, far = socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    with near, far, listener, closing(socket.create_connection(listener.getsockname())):
        near.send(bytes(1000))
        now = ProcessUse().now()
    more = {name: now[name] - before[name] for name in ("receive_queue_bytes", "send_queue_bytes", "open_files")}
    assert (more["receive_queue_bytes"], more["open_files"]) == (1000, 4)
    assert (more["send_queue_bytes"] >= 1000, now["rss_bytes"] > 1 << 20) == (True, True), (
        "nobody has read what was sent"
    )


def test_what_the_system_does_not_tell_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As /proc/self/fd is to a process that has given up its rights."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text("Name: rljob\nVmRSS:    8 kB\n")
    monkeypatch.setattr(process, "_PROC", tmp_path)
    found = ProcessUse().now()
    assert set(found) == {"cpu_seconds", "cpu_cores", "rss_bytes", "shm_bytes"}
    assert (found["rss_bytes"], found["shm_bytes"]) == (8192.0, 0.0)


def test_children_that_end_while_they_are_looked_at_do_no_harm() -> None:
    with repeating(lambda: subprocess.run(["true"], check=True)):
        totals = [cpu_seconds() for _ in range(300)]
    assert max(totals) >= totals[0] > 0


def test_time_of_a_child_counts_while_it_lives_and_afterwards() -> None:
    before = cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        alive = cpu_seconds() - before
        child.stdin.close()
    assert min(alive, cpu_seconds() - before) > 0.25


def test_time_in_which_a_core_was_wanted_and_not_had_is_counted() -> None:
    """Two that want one core for a third of a second each: together they wait at least as long as one of them works."""
    core = min(os.sched_getaffinity(0))
    before = thread_times()
    command = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\n{BUSY}"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        for each in (one, other):
            each.stdout.readline()
        waited = core_wait_seconds(before, thread_times())
        for each in (one, other):
            each.communicate(b"\n")
    assert waited > 0.2
    assert thread_times(1 << 30) == {}, "of a process that is not there"


def test_threads_that_hardly_work_do_not_count() -> None:
    before = {"1": (10.0, 5.0), "2": (1.0, 50.0)}
    assert core_wait_seconds(before, {"1": (11.0, 5.5), "2": (1.05, 60.0), "3": (0.3, 0.2)}) == pytest.approx(0.5 + 0.2)
    assert core_wait_seconds({}, {}) == 0.0


def test_a_forked_process_counts_from_its_own_start() -> None:
    """As a role does, whose parent has loaded torch: it has computed for seconds before."""
    code = f"""
import os, time
while time.process_time() < 0.5: pass
from rljob.telemetry.process import PROCESS
PROCESS.now()
if os.fork(): os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
while time.process_time() < 0.2: pass
PROCESS._taken = (PROCESS._taken[0] - {process.SAMPLED_EVERY_SECONDS}, *PROCESS._taken[1:])
now = PROCESS.now()
os._exit(not 0.15 < now["cpu_seconds"] < 0.45 or not now["cpu_cores"] > 0)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_sample_is_kept_for_a_while_and_cores_are_those_between_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SAMPLED_EVERY_SECONDS", 600.0)  # a loaded machine takes its time
    use = ProcessUse()
    first = use.now()
    spent = os.times().user
    while os.times().user - spent < 0.2:
        pass
    assert use.now() is first
    use._taken = (use._taken[0] - process.SAMPLED_EVERY_SECONDS, *use._taken[1:])
    second = use.now()
    assert second["cpu_seconds"] - first["cpu_seconds"] > 0.15
    assert 0.0 < second["cpu_cores"] <= 64.0
