"""What `rljob run` settles before it starts a process: its own checks, the roles' addresses, and the manifest's variables."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rljob.api import load_manifest
from rljob.api.networks import NetworkProblem
from rljob.checkpoints.names import CheckpointProblem
from rljob.envs import EnvironmentProblem, environment_of, hand_over
from rljob.files import NoSocketFolder
from rljob.wire import Server
from rljob_operator.core.member import Phase, Role
from rljob_operator.local import preflight
from rljob_operator.local.addresses import Addresses
from rljob_operator.local.process import RoleProcess
from rljob_operator.surroundings import own_variables

from tests.support.controller import CARTPOLE
from tests.support.launch import execute
from tests.support.paths import EXAMPLES, SUPPORT
from tests.support.specs import spec_of
from tests.support.waiting import eventually

HERE = {"HOME": "/home/me", "EMPTY": ""}
RESOLVED = [
    ("plain", "plain"),
    ("", ""),
    ("$(HOME)/a", "/home/me/a"),
    ("$(EMPTY)-$(BEFORE)", "-b"),
    ("$(RLJOB_NAME).log", "actor-3.log"),
    ("$(AFTER) $(NOBODYS)", "$(AFTER) $(NOBODYS)"),
    ("$$(HOME)", "$(HOME)"),
    ("$$$(HOME)", "$/home/me"),
    ("$$$$", "$$"),
    ("$HOME ${HOME} $", "$HOME ${HOME} $"),
    ("$(HOME", "$(HOME"),
    ("$($(HOME))", "$($(HOME))"),
    ("$()", "$()"),
    ("$(A)", "$(A)"),
]
"""A value -> what a kubelet makes of it, by the words of the field in core's reference."""


def test_frames_that_no_network_sees_are_named_before_anything_starts() -> None:
    here = "spec.environment={id: tests.support.toys:Colours}"
    huge = 'spec.environment.kwargs={"height": 300, "width": 200}'

    def check(network: str, *more: str) -> None:
        preflight.check(load_manifest(CARTPOLE, [here, *more, f"spec.algorithm.network={network}"]))

    with pytest.raises(NetworkProblem, match=r"has shape \(300, 200, 3\)"):
        check("Auto", huge)
    check("MLP", huge)
    check("Auto")


def test_a_replay_larger_than_the_memory_is_refused() -> None:
    with pytest.raises(preflight.PreflightProblem, match="available"):
        preflight.check(load_manifest(EXAMPLES / "cartpole-apex.yaml", ["spec.replay.capacity=90000000000"]))


def test_an_environment_that_ends_its_process_does_not_end_this_one(tmp_path: Path) -> None:
    file = tmp_path / "ends_it.py"
    file.write_text("import os\n\ndef make():\n    os._exit(3)\n")
    with pytest.raises(EnvironmentProblem, match=r"'ends_it.py:make': the process that tried it ended by exit code 3"):
        preflight.check(load_manifest(CARTPOLE, [f"spec.environment={{id: {file}:make}}"]))


def test_what_it_is_is_handed_to_roles_that_need_no_more(tmp_path: Path) -> None:
    """They do not look for it, as long as the job asks for the same one."""
    overrides = ["spec.environment={id: nowhere:make}", "spec.environment.kwargs={size: 3}"]
    source = load_manifest(CARTPOLE, overrides).spec.environment
    spec = spec_of("nowhere:make", (3,), "float32", 1, 2, 1, "print")
    hand_over(tmp_path, source, spec)
    assert environment_of(tmp_path, source) == spec
    other = load_manifest(CARTPOLE, [overrides[0]]).spec.environment
    with pytest.raises(EnvironmentProblem, match="No module named 'nowhere'"):
        environment_of(tmp_path, other)


def test_a_checkpoint_to_start_from_is_looked_for_before_a_new_run_only(tmp_path: Path) -> None:
    job = load_manifest(CARTPOLE, [f"spec.checkpoint.restoreFrom=file://{tmp_path}/gone"])
    with pytest.raises(CheckpointProblem, match="gone is no folder here"):
        preflight.check(job, new=True)
    preflight.check(job)  # a run that goes on has its own


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "run" / "roles").mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


@pytest.mark.parametrize("mode", [0o700, 0o2777], ids=["", "new folders inherit their group"])
def test_the_folder_stays_the_same_and_is_its_users_alone(mode: int, temporary: Path, tmp_path: Path) -> None:
    """In a pod's volume with fsGroup a learner and its actors once looked for each other in different folders."""
    temporary.chmod(mode)
    first = Addresses.of(tmp_path / "run", shards=1)
    assert (first.folder.parent, first.folder.stat().st_mode & 0o777) == (temporary, 0o700)
    assert Addresses.of(tmp_path / "run", shards=1) == first


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_not_taken(mode: int, temporary: Path, tmp_path: Path) -> None:
    first = Addresses.of(tmp_path / "run", shards=1)
    first.folder.chmod(mode)
    assert Addresses.of(tmp_path / "run", shards=1).folder != first.folder


def test_a_long_folder_for_temporary_files_is_not_used(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("long-" * 15)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    meeting = Addresses.of(tmp_path / "run", shards=1, inference_servers=12)
    assert meeting.folder.parent == Path("/tmp")
    with Server(meeting.inference[11]):
        meeting.remove()


def test_no_folder_for_temporary_files_is_a_sentence(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "gone"))
    with pytest.raises(NoSocketFolder, match=r"gone.*set TMPDIR to one that can be written"):
        Addresses.of(tmp_path / "run", shards=1)


@pytest.mark.parametrize(("written", "resolved"), RESOLVED)
def test_references(written: str, resolved: str) -> None:
    env = [{"name": "BEFORE", "value": "b"}, {"name": "A", "value": written}, {"name": "AFTER", "value": "c"}]
    job = load_manifest(SUPPORT / "pong.yaml", [f"spec.actors.env={json.dumps(env)}"])
    assert own_variables(job, "actor-3", HERE) == {"BEFORE": "b", "A": resolved, "AFTER": "c"}
    assert own_variables(job, "learner", HERE) == own_variables(job, "replay-0", HERE) == {}


@pytest.mark.parametrize(("there", "value"), [({"KEY": "exported"}, "exported"), ({}, "$(KEY)")])
def test_what_a_cluster_takes_from_elsewhere_is_what_is_there(there: dict[str, str], value: str) -> None:
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}, {"name": "A", "value": "$(KEY)"}]
    job = load_manifest(SUPPORT / "pong.yaml", [f"spec.replay.env={json.dumps(env)}"])
    assert own_variables(job, "replay-0", there) == {"A": value}


def test_a_role_has_them_from_its_beginning(tmp_path: Path) -> None:
    """They win over those that every such role has."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "roles").mkdir()
    code = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'], os.environ['A'])"
    process = RoleProcess("actor-0", Role.ACTOR, [sys.executable, "-c", code], tmp_path, execute)
    process.variables = {"OMP_NUM_THREADS": "4", "A": "b"}
    process.start()
    eventually(lambda: process.observe().phase is Phase.EXITED)
    assert (tmp_path / "logs" / "actor-0.log").read_text() == "4 1 b\n"
