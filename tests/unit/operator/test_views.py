"""What the verbs print, from what was seen: columns, reasons, words."""

import io
import re
import time

import pytest
from rich.console import Console
from rljob.api.controller_memory import ControllerMemory
from rljob.api.learner_status import ActorStatus, LearnerStatus
from rljob.api.status import AutoscalingStatus, Condition, Failure, InferenceStatus, RLJobStatus
from rljob_operator.view.job_view import LOST, JobView, table
from rljob_operator.view.live import screen
from rljob_operator.view.reasons import why
from rljob_operator.view.run_figures import blocked_fraction, stored
from rljob_operator.view.words import age, duration, number, percent

FIGURES = {
    "queue_depth_batches": 12.0,
    "queue_bound_batches": 125.0,
    "episode": {"is_success": 0.85},
    "steps_per_second": 1234.5,
    "mean_return": 198.25,
    "policy_lag_updates_p95": 80.0,
    "learner_wait_fraction": 0.25,
    "updates": 900,
    "actors": [
        {"name": "actor-0", "state": "Running", "incarnation": "a", "stages": {"env": 3.0, "blocked": 1.0}},
        None,
    ],
}


def ready(status: str, reason: str) -> Condition:
    return Condition.model_validate(
        {"type": "Ready", "status": status, "reason": reason, "last_transition_time": time.time() - 90}
    )


def run(status: RLJobStatus, **fields: object) -> JobView:
    values: dict[str, object] = {
        "place": "runs/x",
        "document": {"metadata": {"name": "pong"}},
        "status": status,
        "attended": True,
        "running": ("learner",),
        "figures": FIGURES,
        "further": {"FOLDER": "runs/x"},
    } | fields
    return JobView(**values | {"figures": LearnerStatus.lenient(values["figures"])})  # type: ignore[arg-type]


def test_columns_are_aligned_and_say_what_is_unknown() -> None:
    status = RLJobStatus(conditions=[ready("True", "Running")], start_time=time.time() - 3630)
    lines = table([run(status), run(RLJobStatus(), figures={})], wide=False)
    assert lines[1].split() == ["pong", "Running", "0/0", "12/125", "1,234", "198.2", "80", "-", "0s", "60m"]
    assert lines[2].split() == ["pong", "Starting", "0/0", "-", "-", "-", "-", "-", "-", "-"]
    assert lines[0].index("STATE") == lines[1].index("Running") == lines[2].index("Starting")
    assert "runs/x" in table([run(status)], wide=True)[1]


@pytest.mark.parametrize(
    ("memory", "who", "seconds"),
    [
        ({"spent_active_seconds": 240.0}, {"attended": False, "running": ()}, 240),
        ({"spent_active_seconds": 240.0, "active_since": 9_900.0}, {}, 340),
        ({"spent_active_seconds": 240.0, "active_since": 9_900.0}, {"attended": False}, 340),
        ({"spent_active_seconds": 240.0, "active_since": 9_900.0}, {"attended": False, "running": ()}, 301),
    ],
    ids=["ended", "running", "unattended", "lost"],
)
def test_the_duration_stands_still_when_nothing_runs(
    memory: dict[str, float], who: dict[str, object], seconds: int
) -> None:
    status = RLJobStatus(active_seconds=301, start_time=1.0, controller=ControllerMemory.model_validate(memory))
    assert run(status, **who).active_seconds(10_000.0) == seconds


@pytest.mark.parametrize(
    ("reason", "running", "state"),
    [("Running", ("learner",), LOST), ("Running", (), LOST), ("SessionEnded", (), "SessionEnded")],
)
def test_a_state_without_a_controller_is_not_what_the_last_one_wrote(
    reason: str, running: tuple[str, ...], state: str
) -> None:
    seen = run(RLJobStatus(conditions=[ready("True", reason)]), attended=False, running=running)
    assert (seen.state, state in why(seen)[0]) == (state, True)


def test_why_shows_the_decision_its_limit_and_what_failed() -> None:
    limited = condition("ScalingLimited", "True", "TooManyReplicas", "at 2")
    failure = {"time": 5.0, "role": "Actor", "pod_name": "actor-3", "exit_code": 137, "action": "RestartRole"}
    decision = "178 / 36 = 4.9 wanted: 2 -> 2 actors"
    status = RLJobStatus(
        conditions=[ready("False", "Failed"), limited],
        autoscaling=AutoscalingStatus(desired_replicas=2, recommended_replicas=5, last_decision=decision),
        failures=[Failure.model_validate({**failure, "reason": "Killed", "message": "out of memory"})],
    )
    text = "\n".join(why(run(status)))
    for said in (
        "178 / 36 = 4.9 wanted",
        "Recommended: 5.",
        "Limited by TooManyReplicas: at 2",
        "actor-3, exit code 137, Killed, RestartRole: out of memory",
    ):
        assert said in text
    assert re.search(r"Ready=False Failed, for \S+$", text, re.MULTILINE), "nothing to say about it, and nothing said"


def test_why_says_what_a_degraded_run_lacks() -> None:
    lines = why(run(RLJobStatus(conditions=[condition("Ready", "True", "Degraded", "the metric is not reported")])))
    assert lines[-1].endswith(": the metric is not reported")


def test_why_says_that_no_game_has_ended() -> None:
    def said(**figures: int) -> str:
        return "\n".join(why(run(RLJobStatus(conditions=[ready("True", "Running")]), figures=figures)))

    assert "No game has ended in 250,000 steps of all environments" in said(episodes_total=0, steps_total=250_000)
    for fine in ({"episodes_total": 1, "steps_total": 250_000}, {"episodes_total": 0, "steps_total": 900}, {}):
        assert "No game" not in said(**fine)


def condition(type: str, status: str, reason: str, message: str = "") -> Condition:
    stamped = {"type": type, "status": status, "reason": reason, "message": message, "last_transition_time": 1.0}
    return Condition.model_validate(stamped)


WAITS = "trial 0: pod a-0-judge-0-0 does not come up: 0/3 nodes are available"
OVER = [condition("Ready", "True", "Complete", "best"), condition("Complete", "True", "Completed", "best")]


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([condition("Ready", "True", "Running", WAITS)], f"a is Running: {WAITS}"),
        ([condition("Ready", "True", "Running")], "a is Running"),
        (OVER, "a is Complete"),
    ],
)
def test_why_of_an_experiment_has_its_own_words(conditions: list[Condition], said: str) -> None:
    document = {"kind": "RLExperiment", "metadata": {"name": "a"}, "status": {"trials": 2, "running": 1}}
    lines = why(run(RLJobStatus(conditions=conditions), document=document))
    assert (lines[0], "Trials: 0 of 2 are over; 1 runs play, 0 have failed." in lines) == (said, True)


STOPPED = [condition(f"{role}Ready", "False", "PodsStopped") for role in ("Replay", "Learner", "Actors")]


def test_nothing_is_odd_about_a_run_that_succeeded() -> None:
    done = condition("Complete", "True", "TargetReturnReached", "mean 18.4 over 100 games")
    ended = [condition("Ready", "True", "Complete"), condition("Progressing", "False", "Finishing"), done, *STOPPED]
    text = "\n".join(why(run(RLJobStatus(conditions=ended))))
    assert "Complete (TargetReturnReached): mean 18.4 over 100 games" in text
    assert [words for words in ("not as in a healthy run", "Actors:") if words in text] == []

    bad = condition("CheckpointValid", "False", "StorageError", "no space left")
    text = "\n".join(why(run(RLJobStatus(conditions=[*ended, bad]))))
    assert ("CheckpointValid=False StorageError" in text, "Complete=True" in text) == (True, False)


def test_a_suspended_run_tells_who_suspended_it_and_no_more() -> None:
    suspended = condition("Suspended", "True", "UserRequested", "spec.suspend is true")
    lines = why(run(RLJobStatus(conditions=[condition("Ready", "False", "Suspended"), suspended, *STOPPED])))
    assert [line for line in lines if line.startswith("  ")] == [
        next(line for line in lines if "Suspended=True UserRequested" in line)
    ]


def printed(*views: JobView, width: int = 120) -> str:
    """The screen of one look, or of a look and the one before."""
    console = Console(file=io.StringIO(), width=width)
    console.print(screen(*views))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("figures", [{}, FIGURES, {"actors": "none", "queue_depth_batches": "many", "updates": None}])
def test_the_screen_stands_whatever_the_learner_says(figures: dict[str, object]) -> None:
    assert "queue depth" in printed(run(RLJobStatus(), figures=figures))


def test_what_the_environment_reports_is_shown_by_its_name() -> None:
    assert "episode/is_success 0.85" in printed(run(RLJobStatus()), width=220)


def test_the_screen_shows_what_the_processes_of_each_role_take() -> None:
    taken = {"cpu_cores": 1.254, "rss_bytes": 3 << 20, "shm_bytes": 0, "open_files": 41, "receive_queue_bytes": 2048}
    figures = FIGURES | {"processes": {"learner": taken, "odd": 3}}
    server = {"state": "Serving", "process": {"cpu_cores": 0.5}}
    lines = printed(run(RLJobStatus(), figures=figures, servers={"inference-0": server})).splitlines()
    (heading,) = (at for at, line in enumerate(lines) if "PROCESSES" in line)
    assert re.sub(r"[│\s]+", " ", lines[heading + 1]).split(" ")[1:-1] == [
        "learner", "1.25", "3", "MiB", "0", "KiB", "41", "2", "KiB", "-",
    ]  # fmt: skip
    assert re.sub(r"[│\s]+", " ", lines[heading + 2]).strip() == "inference-0 0.50 - - - - -"
    assert "odd" not in "".join(lines)


def test_the_screen_shows_inference_servers_of_their_own() -> None:
    def look(requests: object, waited: float) -> JobView:
        server = {"state": "Serving", "requests_total": requests, "stages": {"wait": waited}, "batch_mean": 6.4}
        return run(RLJobStatus(inference=InferenceStatus(ready=1, desired=2)), servers={"inference-0": server})

    def shown(answers: object, before: object) -> str:
        return printed(look(answers, 20.0), look(before, 10.0))

    text = shown(3500, 1000)
    assert re.search(r"inference-0 +Serving +250 +6.4", text), text
    assert re.search(r"inference-1 +not running", text), text
    assert "1 ready of 2" in text
    for answers, before in ((1, 1000), ("many", 1), (None, None)):
        assert re.search(r"inference-0 +Serving +- +6.4", shown(answers, before))


def test_blocked_time_is_since_the_look_before_of_the_same_life() -> None:
    before = ActorStatus(incarnation="a", stages={"env": 8.0, "blocked": 0.0})
    now = {"env": 9.0, "blocked": 3.0}
    assert blocked_fraction(ActorStatus(incarnation="a", stages=now), before) == 0.75
    assert blocked_fraction(ActorStatus(incarnation="b", stages=now), before) == 0.25
    assert blocked_fraction(ActorStatus()) is None


def test_words() -> None:
    assert [age(s) for s in (-5, 45, 119, 720, 3600 * 3 + 300, 86400 * 3)] == ["0s", "45s", "119s", "12m", "3h5m", "3d"]
    assert [duration(s) for s in (None, 63, 3723)] == ["-", "1:03", "1:02:03"]
    assert (number(True, "{}"), number(None, "{}"), percent(0.256), percent("x")) == ("-", "-", "26 %", "-")


@pytest.mark.parametrize(
    ("gpu", "cell"),
    [
        (
            {"utilization": 0.97, "sm_activity": 0.634, "memory_used_bytes": 12.5 * 2**30, "power_watts": 412.4}
            | {"memory_total_bytes": 79.6 * 2**30},
            "GPU 63 % busy, 12.5 of 79.6 GiB, 412 W",
        ),
        (
            {"utilization": 0.97, "memory_used_bytes": 2**30, "memory_total_bytes": 2**34},
            "GPU 97 % busy, 1.0 of 16.0 GiB",
        ),
        ({"memory_used_bytes": 2**30, "memory_total_bytes": 2**34}, "GPU - busy, 1.0 of 16.0 GiB"),
        ({}, None),
    ],
)
def test_the_screen_says_how_busy_and_full_the_learners_gpu_is(gpu: dict[str, float], cell: str | None) -> None:
    text = printed(run(RLJobStatus(), figures={**FIGURES, "gpu": gpu}), width=220)
    assert ("GPU" not in text) if cell is None else (cell in text), text


@pytest.mark.parametrize(
    ("dropped", "words"),
    [
        ({}, "1,500 learned, 0 dropped"),
        ({"stale": 30, "overflow": 12}, "1,500 learned, 42 dropped"),
        ({"stale": 30, "centring": 128}, "1,500 learned, 30 dropped, 128 for statistics alone"),
    ],
)
def test_unrolls_that_were_looked_at_are_not_told_as_dropped(dropped: dict[str, int], words: str) -> None:
    assert stored(LearnerStatus.lenient({"queue": {"learned": 1500, "dropped": dropped}})) == {"unrolls": words}
