"""The record of a run, read back with TensorBoard's own reader, through restarts, torn lines and a full disk."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import rljob.telemetry.recorder as recorder_module
from rljob.telemetry.catalogue import CLEANRL, STABLE_BASELINES3
from rljob.telemetry.flat_figures import flatten_status, stage_fractions
from rljob.telemetry.recorder import Recorder, iter_records, read_records, thinned
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.clock import Clock

KNOWN = {each.tag for each in (*STABLE_BASELINES3, *CLEANRL)}


def status(updates: int, **more: Any) -> dict[str, Any]:
    return {
        "role": "learner", "state": "Training", "epoch": 1, "updates": updates, "raw_frames_total": updates * 40,
        "mean_return": -3.5, "loss": 0.25, "device": "cpu", "precision": "FP32",
        "replay": {"items": 500, "fill": 0.5, "durable": True, "state": "serving"},
        "actors": [{"state": "Running"}, {"state": "Gone"}, {"state": "Running", "age_seconds": 60.0}, {"state": "Running"}],
        "stages": {"learner": {"wait": float(updates), "update": 3.0 * updates}},
    } | more  # fmt: skip


def points(folder: Path) -> list[dict[str, Any]]:
    return [record for record in read_records(folder / "metrics.jsonl") if "kind" not in record]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def record_thousand(recorder: Recorder) -> None:
    for updates in range(1000):
        recorder.record({"loss": 1.0}, updates * 40, updates)


def test_both_files_hold_the_same_names_and_numbers(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.record_status(status(10))
        recorder.record_status(
            status(
                20,
                processes={"actor": {"rss_bytes": 5.0}},
                loss=float("nan"),
                episode={"is_success": 0.75, "none": None},
            )
        )
    first, second = points(tmp_path)
    expected = {
        "raw_frames": 400,
        "replay/items": 500,
        "actors_running": 2,
        "stage/learner/wait": 0.25,
        "state": "Training",
    }
    assert {name: first[name] for name in expected} == expected
    assert ("loss" in second, second["processes/actor/rss_bytes"]) == (False, 5.0)
    written = {tag: points for tag, points in scalars(tmp_path).items() if tag not in KNOWN}
    stamps = {"time_unix", "elapsed_seconds", "raw_frames", "state"}
    assert set(written) == (set(first) | set(second)) - stamps - {"processes/actor/rss_bytes"}
    assert (written["loss"], written["episode/is_success"]) == ([(400, 0.25)], [(800, 0.75)])
    assert written["updates"] == [(400, 10.0), (800, 20.0)]


def test_tags_that_users_of_other_libraries_know_stand_beside_ours(tmp_path: Path) -> None:
    said = {"steps_total": 100, "steps_per_second": 50.0, "mean_length_steps": 21.5, "learning_rate": 3e-4}
    ppo = {"policy_loss": -0.25, "value_loss": 0.5, "entropy": 0.75, "policy_kl": 0.125, "clip_share": 0.0625}
    verdict = {"version": 4, "updates": 8, "raw_frames": 320, "mean": 17.5, "mean_length_steps": 90.0}
    with Recorder(tmp_path) as recorder:
        recorder.record_status(
            status(
                10,
                **said,
                **ppo,
                episode={"is_success": 0.75},
                evaluations=[verdict | {"metrics": {"is_success": 1.0}}],
            )
        )
    found = scalars(tmp_path)
    assert {tag: found[tag][0][1] for tag in KNOWN & set(found)} == pytest.approx(
        {
            "rollout/ep_rew_mean": -3.5, "rollout/ep_len_mean": 21.5, "rollout/success_rate": 0.75, "eval/mean_reward": 17.5,
            "eval/mean_ep_length": 90.0, "eval/success_rate": 1.0, "time/fps": 50.0, "time/total_timesteps": 100.0,
            "train/learning_rate": 3e-4, "train/loss": 0.25, "train/policy_gradient_loss": -0.25, "train/value_loss": 1.0,
            "train/entropy_loss": -0.75, "train/approx_kl": 0.125, "train/clip_fraction": 0.0625,
            "global_step": 100.0, "charts/episodic_return": -3.5, "charts/episodic_length": 21.5, "charts/SPS": 50.0,
            "charts/learning_rate": 3e-4, "eval/episodic_return": 17.5, "losses/policy_loss": -0.25, "losses/value_loss": 0.5,
            "losses/entropy": 0.75, "losses/approx_kl": 0.125, "losses/clipfrac": 0.0625,
        }
    )  # fmt: skip
    assert found["eval/mean_reward"] == [(320, 17.5)]
    assert found["charts/SPS"] == found["steps_per_second"] == [(400, 50.0)]


def test_a_policy_s_loss_beside_critics_is_an_actor_s_and_a_tag_of_the_algorithm_s_own_is_left_to_it(
    tmp_path: Path,
) -> None:
    sac = {"policy_loss": 2.0, "critic_loss": 3.0, "entropy": 1.0, "temperature": 0.5, "q_taken": 4.0}
    with Recorder(tmp_path) as recorder:
        recorder.record_status(status(10, **sac, **{"losses/alpha": 9.0}))
    found = {tag: value for tag, [(_, value)] in scalars(tmp_path).items()}
    assert {tag: found[tag] for tag in KNOWN & set(found)} == {
        "rollout/ep_rew_mean": -3.5, "charts/episodic_return": -3.5, "train/loss": 0.25, "train/actor_loss": 2.0,
        "train/critic_loss": 3.0, "train/ent_coef": 0.5, "losses/actor_loss": 2.0, "losses/qf_loss": 3.0,
        "losses/q_values": 4.0, "losses/alpha": 9.0,
    }  # fmt: skip


def test_evaluations_and_checkpoints_are_recorded_once_even_over_a_restart(tmp_path: Path) -> None:
    verdict = {"version": 4, "updates": 8, "raw_frames": 320, "mean": 17.5, "standard_error": 0.5, "episodes": 20}
    verdict["metrics"] = {"is_success": 0.5}  # type: ignore[assignment]
    saved = {"step": 8, "path": "p", "digest": "d", "state": "Valid", "message": ""}
    for _ in range(2):
        with Recorder(tmp_path) as recorder:
            for updates in (10, 20):
                recorder.record_status(status(updates, evaluations=[verdict], checkpoint=saved))
    records = read_records(tmp_path / "metrics.jsonl")
    evaluations = [record for record in records if record.get("kind") == "evaluation"]
    assert [(one["mean"], one["raw_frames"], one["episode/is_success"]) for one in evaluations] == [(17.5, 320, 0.5)]
    found = scalars(tmp_path)
    assert (found["evaluation/mean"], found["evaluation/episode/is_success"]) == ([(320, 17.5)], [(320, 0.5)])
    checkpoints = [record["step"] for record in records if record.get("kind") == "checkpoint"]
    assert checkpoints == [8, 8]  # once an opening: a resumed learner did verify it again
    assert [record["device"] for record in records if record.get("kind") == "learner"] == ["cpu", "cpu"]


def test_elapsed_time_goes_on_after_a_pause_and_a_torn_line(tmp_path: Path) -> None:
    clock = Clock(1000.0)
    with Recorder(tmp_path, wall=clock, monotonic=clock) as recorder:
        clock.now += 30
        recorder.record({"loss": 1.0}, 100, 1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"loss": 2.0, "time_un')  # killed in the middle of a line
    clock.now += 3600
    with Recorder(tmp_path, wall=clock, monotonic=clock) as recorder:
        clock.now += 5
        recorder.record({"loss": 3.0}, 200, 2)
    assert [(one["loss"], one["elapsed_seconds"]) for one in points(tmp_path)] == [(1.0, 30.0), (3.0, 35.0)]
    assert scalars(tmp_path)["loss"] == [(100, 1.0), (200, 3.0)]


def test_records_are_readable_while_the_recorder_is_open(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.record({"loss": 1.0}, 100, 1)
        assert (len(points(tmp_path)), scalars(tmp_path)["loss"]) == (1, [(100, 1.0)])


def test_a_full_disk_costs_records_not_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = False

    class Disk(recorder_module.io.FileIO):
        """Takes only half of what it is given once it is full, as a file system does at its last block."""

        def write(self, data: bytes) -> int:  # type: ignore[override]
            if not full:
                return super().write(data) or 0
            super().write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorder_module.io, "FileIO", Disk)
    with caplog.at_level(logging.WARNING), Recorder(tmp_path) as recorder:
        for number, full in enumerate([False, True, True, False], start=1):  # noqa: B007 - the disk reads it
            recorder.record({"loss": float(number)}, 100 * number, number)
    # Two files, two records, one line of the log.
    assert (recorder.failures, caplog.text.count("No space left on device")) == (4, 1)
    assert [one["loss"] for one in points(tmp_path)] == [1.0, 4.0]
    assert scalars(tmp_path)["loss"] == [(100, 1.0), (400, 4.0)]
    assert all(map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines()))


def test_a_folder_that_cannot_be_made_is_survived(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file, where a folder should be")
    with Recorder(tmp_path / "run") as recorder:
        recorder.record({"loss": 1.0}, 1, 1)
    assert recorder.failures > 0


def test_flatten_leaves_out_what_is_no_figure() -> None:
    odd = {
        "mean_return": None,
        "loss": float("inf"),
        "replay": None,
        "actors": "3",
        "huge": 10**400,
        "stages": [],
        "state": "Training",
    }
    assert (flatten_status(odd), flatten_status({})) == ({}, {})
    assert flatten_status({"processes": {"actor": {"cpu_cores": 1, "cpu_seconds": 9.0, "odd": None}, "odd": 3}}) == {
        "processes/actor/cpu_cores": 1.0
    }


def test_stage_fractions_are_of_the_interval_and_survive_a_restarted_role() -> None:
    before = {"actor": {"env": 10.0, "send": 10.0}, "learner": {"wait": 50.0, "update": 50.0}}
    now = {"actor": {"env": 13.0, "send": 11.0}, "learner": {"wait": 1.0, "update": 3.0}, "replay": {"idle": 0.0}}
    assert stage_fractions(now, before) == {
        "actor": {"env": 0.75, "send": 0.25},
        "learner": {"wait": 0.25, "update": 0.75},
    }


def test_figures_of_a_gpu_are_recorded_and_its_name_is_a_fact(tmp_path: Path) -> None:
    gpu = {"utilization": 0.5, "power_watts": 400.0}
    facts = {"device": "cuda", "device_name": "NVIDIA H100", "device_memory_bytes": 85e9, "driver": "580.159.04"}
    stages = {"learner": {"wait": 1.0, "update": 3.0}, "gpu": {"wait": 3.0, "update": 1.0}}
    with Recorder(tmp_path) as recorder:
        recorder.record_status(status(10, gpu=gpu, stages=stages, **facts))
    (point,) = points(tmp_path)
    assert {name: point[name] for name in point if "gpu" in name} == {
        "gpu/utilization": 0.5, "gpu/power_watts": 400.0, "stage/gpu/wait": 0.75, "stage/gpu/update": 0.25,
    }  # fmt: skip
    assert scalars(tmp_path)["gpu/power_watts"] == [(400, 400.0)]
    (told,) = [record for record in read_records(tmp_path / "metrics.jsonl") if record.get("kind") == "learner"]
    assert {name: told[name] for name in facts} == facts


def test_a_long_run_keeps_a_record_of_bounded_length_that_spans_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MOST_POINTS", 100)
    verdict = {"version": 4, "updates": 8, "raw_frames": 320, "mean": 17.5, "standard_error": 0.5, "episodes": 20}
    with Recorder(tmp_path) as recorder:
        recorder.record_evaluation(verdict)
        record_thousand(recorder)
    kept = [point["updates"] for point in points(tmp_path)]
    assert 50 <= len(kept) <= 101
    assert (kept, kept[0] < 32) == (sorted(set(kept)), True)
    assert kept[-20:] == list(range(980, 1000)), "the newest lie closest together"
    with Recorder(tmp_path) as recorder:
        recorder.record_evaluation(verdict)
        recorder.record({"loss": 1.0}, 40_000, 1000)
    kinds = [record["kind"] for record in read_records(tmp_path / "metrics.jsonl") if "kind" in record]
    assert (kinds, points(tmp_path)[-1]["updates"]) == (["machine", "evaluation", "machine"], 1000)


def test_a_long_record_of_before_is_thinned_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder(tmp_path) as recorder:
        record_thousand(recorder)
    monkeypatch.setattr(recorder_module, "MOST_POINTS", 100)
    assert 50 <= sum("kind" not in record for record in thinned(iter_records(tmp_path / "metrics.jsonl"))) <= 100
    with Recorder(tmp_path) as recorder:
        recorder.record({"loss": 1.0}, 40_000, 1000)
    assert 50 <= len(points(tmp_path)) <= 501
    assert points(tmp_path)[-1]["updates"] == 1000


def test_events_of_a_long_run_become_rarer_and_verdicts_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "EVENTS_APART", 100)
    clock = Clock(1000.0)
    with Recorder(tmp_path, wall=clock, monotonic=clock) as recorder:
        for second in range(2000):
            recorder.record({"loss": 1.0}, second, second)
            recorder.record_evaluation({"version": second, "raw_frames": second, "mean": 17.5})
            clock.now += 1.0
    found = scalars(tmp_path)
    steps = [step for step, _ in found["loss"]]
    assert steps[:100] == list(range(100)), "at first each point is one"
    assert 250 < len(steps) < 450
    assert steps[-1] >= 1980
    assert len(points(tmp_path)) == 2000
    with Recorder(tmp_path, wall=clock, monotonic=clock) as recorder:
        recorder.record({"loss": 2.0}, 2000, 2000)
    assert scalars(tmp_path)["loss"][-1] == (2000, 2.0), "the first point of a run that goes on is one"
    assert [step for step, _ in found["evaluation/mean"]] == list(range(2000))


def test_tensorboard_shows_no_points_beyond_the_checkpoint_that_a_run_goes_on_from(tmp_path: Path) -> None:
    clock = Clock(1000.0)
    for first in (0, 30):
        with Recorder(tmp_path, wall=clock) as recorder:
            for updates in range(first, first + 50, 10):
                recorder.record({"loss": float(first)}, updates * 40, updates)
        clock.now += 10.0
    steps = [step for step, _ in scalars(tmp_path)["loss"]]
    assert steps == [40 * updates for updates in (0, 10, 20, 30, 40, 50, 60, 70)]
