"""`rljob policy`: what comes is what `load_policy` would take of the run, whole or not at all."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest
import rljob
from rljob.checkpoints import store
from rljob.checkpoints.send import main
from rljob.errors import UsageError
from rljob.learner import state
from rljob_operator.cli import app
from rljob_operator.kube.view.policy import _whole
from rljob_operator.verbs.policy import into
from typer.testing import CliRunner

from tests.unit.learner.learner_builders import identity, parameters, updater


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


def archive_of(folder: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> bytes:
    """What a pod sends of a run, through its reader in pieces of any size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO("\n"))
        assert main([str(folder / "checkpoints")]) == 0
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


def test_a_place_without_one_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"there is no valid checkpoint in {tmp_path} yet\n"


def test_a_run_of_this_machine(run: Path, tmp_path: Path) -> None:
    (run / "job.yaml").write_text(
        "apiVersion: rljob.dev/v1alpha1\nkind: RLJob\nmetadata: {name: a}\nspec: {preset: CartPoleIMPALA}\n"
    )

    def asked(out: Path) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["policy", str(run), "-o", str(out)])
        return done.exit_code, done.output

    code, said = asked(tmp_path / "policy")
    assert (code, f"the policy of update 5 is in {tmp_path / 'policy'}" in said) == (0, True), said
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    code, said = asked(tmp_path / "other")
    assert (code, "there is no valid checkpoint in" in said) == (2, True), said
