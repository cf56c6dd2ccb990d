"""Profiles: the table and the time line; and ``rljob profile`` before it has begun. What
it does beside a run is in ``tests/integration/operator/test_profile.py``.
"""

from pathlib import Path
from typing import Any

import pytest
from rljob_operator.verbs.local_jobs import LocalJob
from rljob_operator.verbs.profile import ENDED, MemberProfile, chrome_trace, profile

MAIN, OTHER, GONE = 140_000_000_000_001, 140_000_000_000_002, 3
SECOND = 1_000_000_000


def part(**more: Any) -> dict[str, Any]:
    """A second of a member whose main thread computes and whose other thread waits."""
    return {
        "began_ns": 5 * SECOND,
        "ended_ns": 6 * SECOND,
        "offset_ns": 100 * SECOND,
        "samples": 10,
        "frames": ["main (a.py)", "step (b.py)", "<lambda> (b.py)", "poll (c.py)"],
        "stacks": [[MAIN, [0, 1], 6], [MAIN, [0, 1, 2], 3], [MAIN, [0], 1], [OTHER, [3], 10], [GONE, [3], 1]],
        "threads": {str(MAIN): ["MainThread", 0.9, 0.1], str(OTHER): ["signals", 0.0, 0.0]},
        "native": 0.05,
        "below": 0.5,
        "spans": [],
        "flows": [],
        "left_out": 0,
        "running": [],
        **more,
    }


def member(*parts: dict[str, Any], name: str = "learner", boot: str = "b") -> MemberProfile:
    found = MemberProfile(name)
    found.boot = boot
    for each in parts:
        found.add(each)
    return found


def test_parts_add_up_and_the_table_is_of_threads_that_compute() -> None:
    found = member(part(), part(began_ns=6 * SECOND, ended_ns=7 * SECOND))
    assert (found.seconds, found.busy) == (2.0, ["MainThread"])
    assert found.functions() == [
        ("step (b.py)", "MainThread", 0.6, 0.9),
        ("<lambda> (b.py)", "MainThread", 0.3, 0.3),
        ("main (a.py)", "MainThread", 0.1, 1.0),
    ]
    heading, columns, first, *_ = found.table()
    assert heading == (
        "learner: 2.0 s, 20 samples; of a core: MainThread 0.90 (and 0.10 waiting for one), processes below it 0.50, "
        "threads without Python 0.05"
    )
    assert columns.split() == ["SELF", "TOTAL", "THREAD", "FUNCTION"]
    assert first.split() == ["60%", "90%", "MainThread", "step", "(b.py)"]


def test_where_the_system_does_not_say_who_computes_all_threads_are_shown() -> None:
    found = member(part(threads={str(MAIN): ["MainThread", 0, 0], str(OTHER): ["signals", 0, 0]}, native=0, below=0))
    assert sorted(found.busy) == ["MainThread", "signals", ENDED]
    assert "next to nothing" in found.summary()[0]


def test_functions_are_slices_as_wide_as_they_were_seen_often_below_those_that_called_them() -> None:
    trace = chrome_trace([member(part())])
    names = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    found = [(names[event["tid"]], event["name"], event["ts"], event["dur"]) for event in every_slice(trace)]
    assert found == [
        ("MainThread, functions as sampled", "main (a.py)", 0.0, 999_999.998),
        ("MainThread, functions as sampled", "step (b.py)", 100_000.0, 899_999.998),
        ("MainThread, functions as sampled", "<lambda> (b.py)", 700_000.0, 299_999.998),
    ], "of the thread that computes"


def every_slice(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def slices(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of stages."""
    return [event for event in every_slice(trace) if not event["name"].endswith(".py)")]


def test_members_of_one_machine_share_a_clock_and_others_are_aligned_by_the_wall() -> None:
    span = [[MAIN, "update", 5 * SECOND + 1000, 5 * SECOND + 3000]]
    # The second was asked later, after its wall clock had been set; the third is another machine that was booted earlier.
    there = {"began_ns": 70 * SECOND, "ended_ns": 71 * SECOND, "offset_ns": 35 * SECOND}
    trace = chrome_trace(
        [
            member(part(spans=span)),
            member(part(spans=span, offset_ns=9 * SECOND), name="actor-0"),
            member(part(spans=[[MAIN, "env", 70 * SECOND, 70 * SECOND + 500]], **there), name="actor-1", boot="c"),
        ]
    )
    assert [(event["name"], event["ts"], event["dur"]) for event in slices(trace)] == [
        ("update", 1.0, 1.998),
        ("update", 1.0, 1.998),
        ("env", 0.0, 0.498),
    ]
    names = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert list(names.values()) == ["learner", "actor-0", "actor-1"]
    tracks = {(event["pid"], event["tid"]) for event in slices(trace)}
    assert len({tid for _, tid in tracks}) == 3, "no two members' threads are one"


def test_what_began_before_is_cut_and_what_has_not_ended_is_drawn() -> None:
    first = part(spans=[[MAIN, "play", 2 * SECOND, 5 * SECOND + 1000], [MAIN, "play", 2 * SECOND, 4 * SECOND]])
    last = part(began_ns=6 * SECOND, ended_ns=7 * SECOND, running=[["report", 5 * SECOND + 1000]])
    assert [(event["name"], event["ts"], event["dur"]) for event in slices(chrome_trace([member(first, last)]))] == [
        ("play", 0.0, 0.998),
        ("report", 1.0, 1_999_998.998),
    ]


def test_an_arrow_is_of_a_segment_that_was_seen_to_leave_and_to_arrive() -> None:
    def at(microseconds: int, step: str, origin: str, thread: int = MAIN) -> list[Any]:
        return [thread, step, origin, 5 * SECOND + microseconds * 1000]

    actor = member(part(flows=[at(1, "s", "seen"), at(2, "s", "lost")]), name="actor-0")
    flows = [at(9, "f", "seen"), at(5, "t", "seen", OTHER), at(6, "t", "began before"), at(7, "f", "began before")]
    trace = chrome_trace([actor, member(part(flows=flows))])
    ways = [(each["ph"], each["ts"], each["id"], each["bp"]) for each in trace["traceEvents"] if each["ph"] in "stf"]
    assert ways == [("s", 1.0, 1, "e"), ("t", 5.0, 1, "e"), ("f", 9.0, 1, "e")]
    assert chrome_trace([])["traceEvents"] == []


def test_ctrl_c_before_a_folder_is_made_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalJob, "ask", ask)
    (tmp_path / "job.yaml").write_text("kind: RLJob")
    with pytest.raises(KeyboardInterrupt):
        profile(str(tmp_path))
    assert not (tmp_path / "profiles").exists()
