"""The stored object of a run: generations, refused edits, edits by several at once and by hand."""

import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from rljob.api import ManifestError, load_manifest, read_manifest
from rljob.api.document import dump_document, parse_document
from rljob.api.status import RLJobStatus
from rljob.sources import keep_sources
from rljob_operator.local.run_folder import RunFolderProblem, prepare
from rljob_operator.local.spec_store import SpecStore, StoredRun, replace_spec

from tests.support.controller import PONG
from tests.support.jobs import manifest_of


@pytest.fixture
def store(tmp_path: Path) -> SpecStore:
    return created(tmp_path / "run", yaml.safe_load(PONG.read_text()), "spec.actors.replicas=1")


def created(run_dir: Path, manifest: dict[str, Any], *sets: str) -> SpecStore:
    """The store of a new run."""
    file = run_dir.with_suffix(".yaml")
    file.write_text(dump_document(manifest))
    prepare(run_dir, resume=False)
    store = SpecStore(run_dir)
    store.create(read_manifest(file, sets))
    return store


def replicas(number: int) -> Any:
    return lambda document: document["spec"]["actors"].update(replicas=number)


def test_a_changed_spec_is_a_new_generation_and_an_annotation_is_not(store: SpecStore, tmp_path: Path) -> None:
    assert (store.read().generation, store.edited, store.edit(replicas(3)), store.edited) == (1, False, 2, True)
    assert store.edit(replicas(3)) == 2, "nothing changed"
    assert (store.read().generation, store.edited) == (2, False)
    assert store.edit(lambda document: document["metadata"].update(annotations={"a": "b"})) == 2
    stored = SpecStore(tmp_path / "run").read()
    assert (stored.generation, stored.job.spec.actors.replicas) == (2, 3)
    assert stored.job.metadata.annotations == {"a": "b"}
    assert load_manifest(tmp_path / "run" / "job.yaml").spec == stored.job.spec, "it is a manifest like any other"


def test_an_edit_that_breaks_a_rule_is_not_stored(store: SpecStore, tmp_path: Path) -> None:
    before = (tmp_path / "run" / "job.yaml").read_bytes()
    with pytest.raises(ManifestError, match=r"spec\.actors\.replicas"):
        store.edit(replicas(-1))
    assert (tmp_path / "run" / "job.yaml").read_bytes() == before


def test_what_an_editor_has_changed_is_read_and_the_next_verb_counts_it(store: SpecStore, tmp_path: Path) -> None:
    path = tmp_path / "run" / "job.yaml"
    document = yaml.safe_load(path.read_text())
    document["spec"]["actors"]["replicas"] = 5
    path.write_text(yaml.safe_dump(document))
    stored = store.read()
    assert (stored.generation, stored.job and stored.job.spec.actors.replicas) == (1, 5)
    assert store.edit(replicas(6)) == 2


def test_edits_at_the_same_time_are_all_kept(store: SpecStore, tmp_path: Path) -> None:
    def edit(name: str) -> None:
        for _ in range(5):
            SpecStore(tmp_path / "run").edit(
                lambda document: document["spec"]["actors"].update(replicas=document["spec"]["actors"]["replicas"] + 1)
            )

    threads = [threading.Thread(target=edit, args=(str(k),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = store.read()
    assert (stored.generation, stored.job.spec.actors.replicas) == (21, 1 + 20)


def test_a_refused_spec_leaves_the_last_good_one_in_force(store: SpecStore, tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run")
    good = run.desired()
    assert good.refusal is None
    path = tmp_path / "run" / "job.yaml"
    text = path.read_text()
    for bad, words in [
        (text.replace("replicas: 1", "replicas: many"), "spec.actors.replicas"),
        ("spec: [", "not valid YAML"),
        ("", "is empty"),
    ]:
        path.write_text(bad)
        desired = run.desired()
        assert not desired.refusal.blocking
        assert words in desired.refusal.message
        assert desired.job == good.job
        again = StoredRun(tmp_path / "run").desired()
        assert again.job == good.job, "also for the next controller"
        assert again.refusal is not None
    path.unlink()
    assert run.desired().job == good.job
    path.write_text(text)
    assert run.desired().refusal is None


@pytest.mark.parametrize("with_a_controller", [True, False])
def test_a_default_follows_a_change_of_what_it_follows_from(tmp_path: Path, with_a_controller: bool) -> None:
    """rateLimiter.minSize never changes, but no user wrote it, and the capacity that it follows from may change."""
    run_dir = tmp_path / "run"
    spec = {"algorithm": {"type": "ApeXDQN"}, "environment": {"id": "CartPole-v1"}, "replay": {"capacity": 20000}}
    store = created(run_dir, manifest_of(spec))
    run = StoredRun(run_dir)
    assert store.edit(lambda document: document["spec"]["replay"].update(capacity=30000)) == 2
    desired = (run if with_a_controller else StoredRun(run_dir)).desired()
    assert desired.refusal is None
    replay = desired.job.spec.required_replay
    assert (replay.capacity, replay.rate_limiter.min_size) == (30000, 30000)
    with pytest.raises(ManifestError, match=r"rateLimiter\.minSize: got 10000; it cannot be changed"):
        store.edit(lambda document: document["spec"]["replay"].update(rateLimiter={"minSize": 10000}))


def test_the_folder_has_the_job_as_written_and_the_job_in_force(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    manifest = manifest_of({"preset": "PongVTrace"}, "a")
    manifest["metadata"]["annotations"] = {"note": "1e3"}
    created(run_dir, manifest, "spec.learner.resources.requests.cpu=2", "spec.image=")
    job = StoredRun(run_dir).desired().job
    written = parse_document((run_dir / "job.yaml").read_bytes(), "job.yaml")
    assert written["spec"] == {
        "preset": "PongVTrace",
        "learner": {"resources": {"requests": {"cpu": "2"}}},
        "actors": {"replicas": 1},  # which an API server stores, too
    }
    assert written["metadata"] == {"name": "a", "annotations": {"note": "1e3"}, "generation": 1}
    in_force = parse_document((run_dir / "job-effective.yaml").read_bytes(), "job-effective.yaml")["spec"]
    assert in_force["learner"]["resources"]["requests"] == {"cpu": "2", "memory": "2Gi"}, "the preset's memory"
    assert in_force["algorithm"]["unrollLength"] == 128
    assert load_manifest(run_dir / "job-effective.yaml") == job


def test_what_was_written_decides_when_a_run_goes_on_with_changes(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    store = created(run_dir, manifest_of({"algorithm": {"type": "IMPALA"}, "environment": {"id": "CartPole-v1"}}))
    before = StoredRun(run_dir).desired().job.spec.algorithm.parameters
    assert before.unroll_queue.capacity == 2 * before.batch_size
    store.edit(replace_spec(read_manifest(run_dir / "job.yaml", ["spec.algorithm.batchSize=64"])))
    after = StoredRun(run_dir).desired().job.spec.algorithm.parameters
    assert (after.batch_size, after.unroll_queue.capacity) == (64, 128), "a default follows what is written"
    assert parse_document((run_dir / "job.yaml").read_bytes(), "job.yaml")["spec"]["algorithm"] == {
        "type": "IMPALA",
        "batchSize": 64,
    }


def test_a_project_may_move_and_what_is_gone_is_the_runs_copy(tmp_path: Path) -> None:
    run, places = tmp_path / "run", [tmp_path / name / "env.py" for name in ("old", "new")]
    for place in places:
        place.parent.mkdir()
        place.touch()
    store = created(run, manifest_of({"environment": {"id": f"{places[0]}:make"}}))
    StoredRun(run)
    keep_sources(run, {"env.py": places[0]})
    assert store.edit(lambda document: document["spec"]["environment"].update(id=f"{places[1]}:make")) == 2
    with pytest.raises(ManifestError, match=r"spec\.environment\.id: .* cannot be changed"):
        store.edit(lambda document: document["spec"]["environment"].update(id=f"{places[1]}:another"))
    for place in places:
        place.unlink()
    assert StoredRun(run).desired().job.spec.environment.id == f"{run}/code/env.py:make"
    assert f"{run}/code/env.py:make" in (run / "job-effective.yaml").read_text()


def test_without_any_spec_there_is_no_run(tmp_path: Path) -> None:
    prepare(tmp_path / "run", resume=False)
    with pytest.raises(RunFolderProblem):
        StoredRun(tmp_path / "run")


def test_a_damaged_status_is_told_and_replaced(store: SpecStore, tmp_path: Path) -> None:
    (tmp_path / "run" / "status.json").write_text("{")
    run = StoredRun(tmp_path / "run")
    assert run.status == RLJobStatus()
    assert "status.json" in run.notes[0]
    run.write_status(RLJobStatus(active_seconds=3), at_once=True)
    assert StoredRun(tmp_path / "run").status.active_seconds == 3
