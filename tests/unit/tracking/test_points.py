"""Points are read as the learner writes them, each once, whatever becomes of the file meanwhile."""

import json
from pathlib import Path

import pytest
from rljob.telemetry import recorder as recorder_module
from rljob.telemetry.recorder import METRICS_FILE, Recorder
from rljob.tracking.points import Follower, point_of


def frames(follower: Follower) -> list[int]:
    return [point.raw_frames for point in follower.read(1000)]


def test_what_a_recorder_writes_is_read_once_and_evaluations_are_named_as_in_tensorboard(tmp_path: Path) -> None:
    follower = Follower(tmp_path / METRICS_FILE)
    assert follower.read(10) == []
    with Recorder(tmp_path) as recorder:
        recorder.record({"mean_return": 1.5, "loss": float("nan")}, 10, 1, state="Training")
        (first,) = follower.read(10)
        assert (first.raw_frames, first.values["mean_return"]) == (10, 1.5)
        assert "loss" not in first.values
        recorder.record_evaluation({"version": 1, "raw_frames": 8, "mean": 3.0, "metrics": {"is_success": 0.5}})
        (verdict,) = follower.read(10)
        assert (verdict.values["evaluation/mean"], verdict.values["evaluation/episode/is_success"]) == (3.0, 0.5)
        assert follower.read(10) == []


def test_a_line_under_way_waits_and_one_that_a_crash_cut_short_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    line = json.dumps({"time_unix": 1.5, "raw_frames": 3, "x": 1}).encode()
    path.write_bytes(line[:10])
    follower = Follower(path)
    assert follower.read(10) == []
    path.write_bytes(line + b"\n" + line[:9] + b"\n" + json.dumps({"time_unix": 2.5, "raw_frames": 4}).encode() + b"\n")
    assert frames(follower) == [3, 4]


@pytest.mark.parametrize(
    "line",
    [b"", b"[1]", b'{"kind":"machine","time_unix":1,"raw_frames":0}', b'{"time_unix":null,"raw_frames":1}', b"\xff"],
)
def test_what_is_no_point(line: bytes) -> None:
    assert point_of(line) is None


def test_a_thinned_record_is_read_on_where_it_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MOST_POINTS", 20)
    follower, seen = Follower(tmp_path / METRICS_FILE), list[int]()
    with Recorder(tmp_path) as recorder:
        for frame in range(1, 100):
            recorder.record({"x": 1.0}, frame, 0)
            seen += frames(follower)
        assert seen == list(range(1, 100)), "each was read before it was thinned out, and none twice"
        left = frames(Follower(tmp_path / METRICS_FILE))
        assert len(left) <= 20
        # A process that is started again knows the time of its last point alone, which may be thinned out.
        for last in Follower(tmp_path / METRICS_FILE).read(1000):
            assert frames(Follower(tmp_path / METRICS_FILE, last.time_unix)) == left[left.index(last.raw_frames) + 1 :]
            between = last.time_unix + 1e-7
            assert frames(Follower(tmp_path / METRICS_FILE, between)) == left[left.index(last.raw_frames) + 1 :]


def test_a_clock_that_was_set_back_hides_nothing(tmp_path: Path) -> None:
    path, times = tmp_path / METRICS_FILE, [100.0, 200.0, 50.0, 60.0]
    path.write_text("".join(json.dumps({"time_unix": at, "raw_frames": n}) + "\n" for n, at in enumerate(times)))
    assert (frames(Follower(path, 200.0)), frames(Follower(path, 50.0))) == ([2, 3], [3])
