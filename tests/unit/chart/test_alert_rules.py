"""Every alert, on made-up series, as promtool evaluates it: it fires when it should, and says what, and not otherwise.

The dashboards ask for metrics that are exported, under labels that are there, and each panel is explained on the page.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from rljob.telemetry.catalogue import PROCESS, ROLES
from rljob_operator.kube.reporting.metrics import JobFigures, OperatorMetrics

from tests.support.dashboards import FILES, RUNBOOK, alerts, filled, panels, read, rules_text
from tests.support.paths import ROOT
from tests.unit.test_links import anchors

JOB = 'namespace="team-a",rljob="pong"'
LEARNER = f'{JOB},role="learner",member="learner"'
OF_THE_JOB = {"namespace": "team-a", "rljob": "pong"}
TRAINING = {f'rljob_state{{{LEARNER},state="Training"}}': "1x200"}
FILLING = {f'rljob_state{{{LEARNER},state="WaitingForReplay"}}': "1x200"}
LOG_WANTED = {f'rljob_replay_durability{{{JOB},member="replay-1",durability="On"}}': "1x200"}
LOG_OFF = {f'rljob_replay_durability{{{JOB},member="replay-1",durability="Off"}}': "1x200"}
EVERY_300_SECONDS = {f"rljob_checkpoint_interval_seconds{{{LEARNER}}}": "300x200"}


@dataclass(frozen=True)
class Case:
    """``series`` with one value a minute, and what the alert says ``at`` a minute: nothing, or labels and a summary."""

    alert: str
    what: str
    series: dict[str, str]
    at: int
    labels: dict[str, str] | None = None
    summary: str = ""


def waits(share: float) -> dict[str, str]:
    return {f"rljob_learner_wait_fraction{{{LEARNER}}}": f"{share}x200"}


def held_back(values: str) -> dict[str, str]:
    return {f"rljob_actors_blocked_fraction{{{LEARNER}}}": values}


def started(second: int) -> dict[str, str]:
    return {f"rljob_start_time_seconds{{{LEARNER}}}": f"{second}x200"}


def written(values: str) -> dict[str, str]:
    return {f"rljob_checkpoint_written_timestamp_seconds{{{LEARNER}}}": values}


def durable(values: str) -> dict[str, str]:
    return {f'rljob_replay_durable{{{JOB},member="replay-1"}}': values}


def condition(type: str, reason: str, values: str) -> dict[str, str]:
    return {f'rljob_operator_job_condition{{{JOB},condition="{type}",reason="{reason}"}}': values}


def leader(pod: str, values: str, namespace: str = "rljob-system") -> dict[str, str]:
    return {f'rljob_operator_leader{{namespace="{namespace}",pod="{pod}"}}': values}


def looks(result: str, values: str) -> dict[str, str]:
    return {f'rljob_operator_reconciles_total{{namespace="rljob-system",pod="a",result="{result}"}}': values}


def up(member: str, values: str) -> dict[str, str]:
    return {f'up{{{JOB},member="{member}"}}': values}


NO_CHECKPOINT = "The learner of team-a/pong has written no checkpoint for "
NOT_FINITE = "The loss of team-a/pong was not finite."
STUCK = "team-a/pong has been starting, suspending or ending for half an hour."
STILL = "The learner of team-a/pong makes no updates."
NO_LEADER = "No RLJob operator in rljob-system leads; jobs train on, and no operator looks after them."
NOT_LOOKED_AFTER = "The RLJob operator in rljob-system has failed to look after some job for a quarter of an hour."
CASES = [
    Case("RLJobLearnerStarved", "waits four fifths of the time", {**waits(0.8), **TRAINING}, 16, OF_THE_JOB,
         "The learner of team-a/pong waits for experience 80% of its time."),
    Case("RLJobLearnerStarved", "not yet a quarter of an hour", {**waits(0.8), **TRAINING}, 14),
    Case("RLJobLearnerStarved", "waits a third of the time", {**waits(0.33), **TRAINING}, 60),
    Case("RLJobLearnerStarved", "its replay still fills", {**waits(1.0), **FILLING}, 60),
    Case("RLJobLearnerStarved", "another job trains",
         {**waits(1.0), 'rljob_state{namespace="team-b",rljob="pong",role="learner",state="Training"}': "1x200"}, 60),
    Case("RLJobActorsBlocked", "held back most of the time", held_back("0.75x60"), 16, OF_THE_JOB,
         "The actors of team-a/pong are held back 75% of their time."),
    Case("RLJobActorsBlocked", "for a moment only", held_back("0.9x5 0.1x60"), 16),
    Case("RLJobCheckpointStale", "none since the start",
         {**started(0), **EVERY_300_SECONDS, **TRAINING}, 30, OF_THE_JOB, f"{NO_CHECKPOINT}30m 0s."),
    Case("RLJobCheckpointStale", "the newest is old",
         {**started(0), **written("0x5 300x200"), **EVERY_300_SECONDS, **TRAINING}, 40, OF_THE_JOB,
         f"{NO_CHECKPOINT}35m 0s."),
    Case("RLJobCheckpointStale", "a new one every five minutes",
         {**started(0), **written("0x4 300x4 600x4 900x4 1200x4 1500x4 1800x4"), **EVERY_300_SECONDS, **TRAINING}, 31),
    Case("RLJobCheckpointStale", "came back a moment ago from an old one",
         {**started(2400), **written("0x200"), **EVERY_300_SECONDS, **TRAINING}, 45),
    Case("RLJobCheckpointStale", "has made no update yet", {**started(0), **EVERY_300_SECONDS, **FILLING}, 60),
    Case("RLJobReplayNotDurable", "behind for five minutes",
         {**durable("1x5 0x60"), **LOG_WANTED}, 12, {**OF_THE_JOB, "member": "replay-1"},
         "replay-1 of team-a/pong holds experience that its Redis does not have."),
    Case("RLJobReplayNotDurable", "durable again", {**durable("0x3 1x60"), **LOG_WANTED}, 12),
    Case("RLJobReplayNotDurable", "no log was wanted", {**durable("0x60"), **LOG_OFF}, 30),
    Case("RLJobNonFiniteLoss", "an update was skipped",
         {f"rljob_amp_skipped_steps_total{{{LEARNER}}}": "0x10 1x60"}, 14, OF_THE_JOB, NOT_FINITE),
    Case("RLJobNonFiniteLoss", "that was long ago", {f"rljob_amp_skipped_steps_total{{{LEARNER}}}": "0x10 1x60"}, 40),
    Case("RLJobNonFiniteLoss", "none was skipped", {f"rljob_amp_skipped_steps_total{{{LEARNER}}}": "0x60"}, 30),
    Case("RLJobNonFiniteLoss", "the job has failed of it",
         condition("Failed", "NonFiniteLoss", "_x10 1x200"), 20, OF_THE_JOB, NOT_FINITE),
    Case("RLJobNonFiniteLoss", "it failed hours ago", condition("Failed", "NonFiniteLoss", "1x200"), 150),
    Case("RLJobFailed", "the deadline is over",
         condition("Failed", "DeadlineExceeded", "_x10 1x200"), 20, {**OF_THE_JOB, "reason": "DeadlineExceeded"},
         "team-a/pong has failed: DeadlineExceeded."),
    Case("RLJobFailed", "it failed hours ago", condition("Failed", "DeadlineExceeded", "1x200"), 150),
    Case("RLJobFailed", "another alert says so", condition("Failed", "NonFiniteLoss", "1x200"), 20),
    Case("RLJobStandsStill", "stalled",
         condition("Progressing", "LearnerStalled", "0x60"), 6, OF_THE_JOB, STILL),
    Case("RLJobStandsStill", "first blocked, then starved",
         {**condition("Progressing", "ExperienceBlocked", "0x3 _x60"), **condition("Progressing", "Starved", "_x3 0x60")},
         8, OF_THE_JOB, STILL),
    Case("RLJobStandsStill", "warms up", condition("Progressing", "WarmingUp", "0x60"), 30),
    Case("RLJobStandsStill", "advances", condition("Progressing", "LearnerAdvancing", "1x60"), 30),
    Case("RLJobStuck", "starts for half an hour", condition("Ready", "Starting", "0x60"), 31, OF_THE_JOB, STUCK),
    Case("RLJobStuck", "starts for ten minutes", condition("Ready", "Starting", "0x10 _x60"), 31),
    Case("RLJobStuck", "waits in its queue", condition("Ready", "WaitingForQuota", "0x60"), 45),
    Case("RLJobStuck", "is suspended", condition("Ready", "Suspended", "0x60"), 45),
    Case("RLJobStuck", "runs", condition("Ready", "Running", "1x60"), 45),
    Case("RLJobNotScraped", "no pod answers",
         {**up("learner", "0x60"), **up("actor-0", "0x60")}, 11, OF_THE_JOB,
         "No pod of team-a/pong lets Prometheus read its metrics."),
    Case("RLJobNotScraped", "one of two answers", {**up("learner", "1x60"), **up("actor-0", "0x60")}, 30),
    Case("RLJobNotScraped", "the pod of another workload", {'up{namespace="team-a",pod="web"}': "0x60"}, 30),
    Case("RLJobReconcileErrors", "a job fails again and again",
         {**looks("error", "0+1x60"), **looks("ok", "0+30x60")}, 21, {"namespace": "rljob-system"}, NOT_LOOKED_AFTER),
    Case("RLJobReconcileErrors", "the API server refuses",
         looks("refused", "0+1x60"), 21, {"namespace": "rljob-system"}, NOT_LOOKED_AFTER),
    Case("RLJobReconcileErrors", "two errors, then none", looks("error", "0 1 2x60"), 21),
    Case("RLJobReconcileErrors", "changes by another client", looks("again", "0+5x60"), 30),
    Case("RLJobOperatorWithoutLeader", "both stand by",
         {**leader("a", "0x60"), **leader("b", "0x60")}, 3, {"namespace": "rljob-system"}, NO_LEADER),
    Case("RLJobOperatorWithoutLeader", "there is none",
         {f"rljob_start_time_seconds{{{LEARNER}}}": "1x60"}, 3, {"namespace": "rljob-system"}, NO_LEADER),
    Case("RLJobOperatorWithoutLeader", "that of another namespace leads",
         leader("a", "1x60", namespace="other"), 3, {"namespace": "rljob-system"}, NO_LEADER),
    Case("RLJobOperatorWithoutLeader", "one leads", {**leader("a", "0x60"), **leader("b", "1x60")}, 30),
    Case("RLJobOperatorWithoutLeader", "the lead changes hands",
         {**leader("a", "1x5 _x60"), **leader("b", "0x6 1x60")}, 8),
]  # fmt: skip


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not on the PATH: it comes with Prometheus (docs/monitoring.md)")
    return found


def checked(promtool: str, folder: Path, *words: str) -> None:
    ended = subprocess.run([promtool, *words], cwd=folder, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_rules_are_sound(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rules_text())
    checked(promtool, tmp_path, "check", "rules", "rules.yaml")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.what}")
def test_an_alert(promtool: str, tmp_path: Path, case: Case) -> None:
    expected = []
    if case.labels is not None:
        severity = alerts()[case.alert]["labels"]["severity"]
        annotations = {
            "summary": case.summary,
            "description": alerts()[case.alert]["annotations"]["description"],
            "runbook_url": f"{RUNBOOK}#{case.alert.lower()}",
        }
        expected = [{"exp_labels": {**case.labels, "severity": severity}, "exp_annotations": annotations}]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [{"eval_time": f"{case.at}m", "alertname": case.alert, "exp_alerts": expected}],
    }
    (tmp_path / "rules.yaml").write_text(rules_text())
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    checked(promtool, tmp_path, "test", "rules", "test.yaml")


def test_each_alert_was_seen_to_fire_and_not_to_fire() -> None:
    assert {(case.alert, case.labels is not None) for case in CASES} == {
        (name, fires) for name in alerts() for fires in (True, False)
    }


@pytest.mark.parametrize("name", alerts())
def test_each_alert_says_how_long_how_bad_and_what_to_do(name: str) -> None:
    rule = alerts()[name]
    assert rule["for"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    summary, runbook = (rule["annotations"][each] for each in ("summary", "runbook_url"))
    assert (summary[-1], runbook) == (".", f"{RUNBOOK}#{name.lower()}")


@pytest.mark.parametrize("name", alerts())
def test_each_alert_says_what_its_section_of_the_page_says(name: str) -> None:
    """So a user who is woken by it has it without the page."""
    section = (ROOT / "docs" / "monitoring.md").read_text().split(f"### {name}\n", 1)[1].split("\n##", 1)[0]
    words = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", section).split())
    assert alerts()[name]["annotations"]["description"] == words


PAGE = ROOT / "docs" / "monitoring.md"
VARIABLES = {"namespace": "a", "rljob": "b", "experiment": "b", "__rate_interval": "1m"}
NAME = re.compile(r"\b(rljob_\w+|process_\w+|up)\b")


def names_of(registry: CollectorRegistry) -> set[str]:
    """The names of all series that a registry can have, as they are asked for."""
    suffixes = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
    return {family.name + suffix for family in registry.collect() for suffix in suffixes.get(family.type, ("",))}


def operator_metrics() -> OperatorMetrics:
    metrics = OperatorMetrics()
    metrics.registry.register(JobFigures(lambda: ()))
    return metrics


@pytest.fixture(scope="module")
def exported() -> set[str]:
    roles = {metric.full_name for metrics in (*ROLES.values(), PROCESS) for metric in metrics}
    return roles | names_of(operator_metrics().registry) | {"up"}


def asked_by_dashboards() -> list[tuple[str, str]]:
    return [(panel.title, expression) for file in FILES for panel in panels(file) for expression, _ in panel.asks]


ASKED = [*asked_by_dashboards(), *((name, rule["expr"]) for name, rule in alerts().items())]


@pytest.mark.parametrize(("title", "expression"), ASKED)
def test_a_panel_or_an_alert_asks_for_what_is_exported(exported: set[str], title: str, expression: str) -> None:
    assert set() < set(NAME.findall(filled(expression, VARIABLES))) <= exported


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_dashboard_can_be_loaded(file: Path) -> None:
    document = read(file)
    assert all(document[name] for name in ("uid", "title"))
    numbers = [panel["id"] for panel in document["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert {each["datasource"]["uid"] for each in document["panels"]} == {"${datasource}"}
    assert {
        name for panel in panels(file) for expression, _ in panel.asks for name in re.findall(r"\$(\w+)", expression)
    } - {"__rate_interval"} <= {each["name"] for each in document["templating"]["list"]}
    places = [panel["gridPos"] for panel in document["panels"]]
    assert not any(_overlap(one, other) for i, one in enumerate(places) for other in places[:i])


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


def test_the_page_explains_every_panel() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    assert {(panel.title, panel.description) for file in FILES for panel in panels(file)} <= set(rows)


def test_the_page_lists_every_metric_of_the_operator() -> None:
    listed = set(re.findall(r"^\| `(rljob_operator_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in names_of(operator_metrics().registry)}
    assert listed == {name for name in ours if name.startswith("rljob_")}


def test_the_page_says_what_to_do_about_every_alert() -> None:
    assert {name.lower() for name in alerts()} <= anchors(PAGE)
