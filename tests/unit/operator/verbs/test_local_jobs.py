"""The verbs on runs of this machine: how an edit is merged, what is loaded for it, and which policy `rljob export` takes."""

import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rljob
from rljob.checkpoints import store
from rljob.checkpoints.recording import METRICS, Recording, unpacked
from rljob.checkpoints.send import main
from rljob.errors import UsageError
from rljob.learner import state
from rljob_operator.cli import app
from rljob_operator.kube.view.policy_pod import _whole
from rljob_operator.verbs.export import into
from rljob_operator.verbs.jobs import no_log, not_there
from rljob_operator.verbs.local_jobs import LocalJobs, merge
from typer.testing import CliRunner

from tests.support.experiment_runs import document, experiment_folder
from tests.unit.learner.learner_builders import identity, parameters, updater


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"spec": {"a": 1}}, {"spec": {"suspend": True}}, {"spec": {"a": 1, "suspend": True}}),
        ({"spec": {"actors": None}}, {"spec": {"actors": {"replicas": 2}}}, {"spec": {"actors": {"replicas": 2}}}),
        ({"metadata": {}}, {"metadata": {"annotations": {"x": None}}}, {"metadata": {}}),
        ({"metadata": {"x": {"y": "1"}}}, {"metadata": {"x": {"y": None}}}, {"metadata": {"x": {}}}),
        ({"a": 5}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)  # fmt: skip
def test_merging(before: dict[str, Any], patch: dict[str, Any], after: dict[str, Any]) -> None:
    merge(before, patch)
    assert before == after


def test_a_role_without_a_run_is_a_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = LocalJobs()
    assert (jobs.splits("actor-1"), jobs.splits("runs/pong")) == (True, False)
    (tmp_path / "learner").mkdir()
    assert not jobs.splits("learner")


def test_of_an_experiment_all_runs_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    search = Path("runs/rates")
    experiment_folder(search, document([1e-3, 1e-4]), lambda _rate, _seed, _frames: 1.0)
    for name in (None, str(search)):
        shown = LocalJobs().shown(name, False, figures=True)
        places = {job.place for job in shown.jobs}
        assert (shown.is_list, places) == (True, {"runs/rates/rates-0", "runs/rates/rates-1"})


@pytest.mark.parametrize(
    ("name", "there", "elsewhere", "said"),
    [
        ("pnog", ["pong", "breakout"], [], "did you mean pong?"),
        ("pong", ["pong-2"], ["other"], "there is one in other: -n other"),
        ("x", ["pong", "breakout"], [], "there are: pong, breakout"),
        ("x", [str(n) for n in range(10)], [], "there are: 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
    ],
)
def test_names_that_are_near(name: str, there: list[str], elsewhere: list[str], said: str) -> None:
    assert str(not_there(name, "team", there, elsewhere)).endswith(said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("actor-3", "actor-3: no role or member of this name has a log in runs/x; there are: learner"),
        ("lerner", "lerner: no role or member of this name has a log in runs/x; "),
    ],
)
def test_a_role_that_has_not_begun_is_no_mistake(name: str, said: str) -> None:
    assert str(no_log(name, "runs/x", ["learner"])).startswith(said)


@pytest.mark.parametrize(
    "words", [["--help"], ["get", "--help"], ["get"], ["why", "runs/none"], ["report", "runs/none"]]
)
def test_what_is_not_about_a_cluster_loads_nothing_of_it(words: list[str], tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "bad = ('kubernetes', 'aiohttp', 'kopf')\n"
        "atexit.register(lambda: print([m for m in bad if m in sys.modules], file=sys.stderr))\n"
        "from rljob_operator.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path, timeout=100
    )
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def checkpoint(folder: Path, name: str, updates: int, **more: object) -> None:
    learned = parameters()
    about = {**identity(learned).document(), "counters": {"updates": updates}, **more}
    store.write(folder, name, state.capture(updater(learned)), about)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose newest checkpoint is damaged, and that no evaluator has judged."""
    folder = tmp_path / "run" / "checkpoints"
    for updates in (5, 7):
        checkpoint(folder, store.checkpoint_name(1, updates), updates)
    (folder / store.checkpoint_name(1, 7) / store.TENSORS).write_bytes(b"cut")
    return tmp_path / "run"


def archive_of(folder: Path, capsysbinary: pytest.CaptureFixture[bytes], *words: str) -> bytes:
    """What a pod sends of a run, through its reader in pieces of any size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO("\n"))
        assert main([str(folder / "checkpoints"), *words]) == 0
    said, taken = bytes(capsysbinary.readouterr().out), io.BytesIO()
    take = _whole(taken)
    pieces = [b"", said[:2], said[2:50], said[50:-1], said[-1:]]
    assert [take(piece) for piece in pieces] == [False, False, False, False, True], "only then may the pod end"
    return taken.getvalue()


def test_what_a_pod_sends_loads_as_the_run_does(
    run: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    sent, out = archive_of(run, capsysbinary), tmp_path / "a" / "policy"
    assert into(out, lambda archive: archive.write(sent) and None) == 5
    assert rljob.load_policy(str(out)).manifest["counters"] == {"updates": 5}
    checkpoint(run / "checkpoints", store.BEST, 3)
    judged = archive_of(run, capsysbinary)
    assert into(tmp_path / "judged", lambda archive: archive.write(judged) and None) == 3
    with pytest.raises(UsageError, match="is there already"):
        into(out, lambda archive: None)
    with pytest.raises(UsageError, match="what came is no whole policy"):
        into(tmp_path / "cut", lambda archive: archive.write(sent[: len(sent) // 2]) and None)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "judged", "run"], "nothing half is left"


def test_a_pod_sends_the_recording_that_is_kept_and_the_one_of_now(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / METRICS).write_text('{"loss":1}\n')
    Recording("kind: RLJob\n", "uid-1", tmp_path, tmp_path / "checkpoints").keep(lambda: None)
    (tmp_path / METRICS).write_text('{"loss":1}\n{"loss":2}\n')
    (tmp_path / "now.yaml").write_text("kind: Now\n")
    kept = archive_of(tmp_path, capsysbinary, "uid-1")
    now = archive_of(tmp_path, capsysbinary, "uid-1", str(tmp_path / "now.yaml"))
    assert unpacked(kept) == ("kind: RLJob\n", b'{"loss":1}\n', "")
    assert unpacked(now) == ("kind: Now\n", b'{"loss":1}\n{"loss":2}\n', "")


def test_a_place_without_one_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"there is no valid checkpoint in {tmp_path} yet\n"


def test_a_run_of_this_machine(run: Path, tmp_path: Path) -> None:
    (run / "job.yaml").write_text(
        "apiVersion: rljob.dev/v1alpha1\nkind: RLJob\nmetadata: {name: a}\nspec: {preset: CartPoleIMPALA}\n"
    )

    def asked(out: Path) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["export", str(run), "--format", "policy", "-o", str(out)])
        return done.exit_code, done.output

    code, said = asked(tmp_path / "policy")
    assert (code, f"the policy of update 5 is in {tmp_path / 'policy'}" in said) == (0, True), said
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    code, said = asked(tmp_path / "other")
    assert (code, "there is no valid checkpoint in" in said) == (2, True), said
