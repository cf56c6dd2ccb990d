"""The metrics of each role: what is declared is exported, what is exported is declared, and the page lists both."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rljob.telemetry.catalogue import PROCESS, ROLES, Metric
from rljob.telemetry.metrics import (
    actor_registry,
    evaluator_registry,
    inference_registry,
    learner_registry,
    replay_registry,
)
from rljob.telemetry.metrics_page import markdown

from tests.support.paths import ROOT

REGISTRIES: dict[str, Callable[[Callable[[], dict[str, Any]]], CollectorRegistry]] = {
    "actor": actor_registry,
    "replay": replay_registry,
    "learner": learner_registry,
    "evaluator": evaluator_registry,
    "inference": inference_registry,
}
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
    text = generate_latest(REGISTRIES[role](lambda: status)).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def family_name(metric: Metric) -> str:
    return metric.full_name.removesuffix("_total") if metric.kind == "counter" else metric.full_name


@pytest.mark.parametrize("role", ROLES)
def test_every_declared_metric_is_exported_and_no_other(role: str) -> None:
    families = scrape(role, full_status(role))
    assert set(families) == {family_name(metric) for metric in (*ROLES[role], *PROCESS)}
    for metric in ROLES[role]:
        family = families[family_name(metric)]
        assert family.type == metric.kind
        assert family.documentation == metric.help
        for sample in family.samples:
            assert sample.labels["role"] == role
            assert not metric.label or metric.label in sample.labels


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
    assert actor["rljob_stage_seconds"].samples[0].labels == {"role": "actor", "actor": "actor-3", "stage": "env"}
    assert actor["rljob_chunks_refused"].samples[0].labels["reason"] == "size"
    replay = scrape("replay", {"service": "replay-1", "durable": False, "limiter": {"blocked": "inserts"}})
    assert replay["rljob_replay_durable"].samples[0].value == 0.0
    assert replay["rljob_limiter_blocked"].samples[0].labels == {
        "role": "replay",
        "shard": "replay-1",
        "side": "inserts",
    }
    lag = scrape("learner", {"policy_lag_histogram": {"bounds": [1, 10], "counts": [3, 2, 1], "sum": 42}})
    buckets = {s.labels.get("le"): s.value for s in lag["rljob_policy_lag_bucket_updates"].samples if "le" in s.labels}
    assert buckets == {"1": 3.0, "10": 5.0, "+Inf": 6.0}


def test_a_start_is_told_and_a_checkpoint_only_once_there_is_one() -> None:
    before = time.time()
    registry = learner_registry(lambda: {"checkpoint": {"written_unix": None, "interval_seconds": 300}})
    families = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
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
            assert metric.help.endswith(".")
            assert metric.label not in ("role", role)


def test_the_page_lists_exactly_what_is_declared() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m rljob.telemetry.metrics_page > docs/metrics.md"
    listed = set(re.findall(r"^\| `(rljob_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert listed == {metric.full_name for metrics in (*ROLES.values(), PROCESS) for metric in metrics}
