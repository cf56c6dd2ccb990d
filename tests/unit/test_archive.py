"""A folder that a job takes along: what is in it, what is refused before it is read, and what a pod makes of it."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.api import with_code
from rljob.api.sources import as_found
from rljob.archive import ENTRY, VARIABLE, pack
from rljob.errors import UsageError

ODD = ("a b.txt", "käse.txt", "new\nline.txt", os.fsdecode(b"bad\xff.txt"))


def job(id: str, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": "own"}, "spec": {"environment": {"id": id}, **spec}}


def filled(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name!a}\n")
    return folder


def test_what_a_job_reads_goes_along_and_what_belongs_to_this_machine_stays(tmp_path: Path) -> None:
    goes = ("env.py", "games/__init__.py", "games/maze.py", "games/data/x.py", *ODD)
    stays = (
        ".git/x",
        "games/__pycache__/maze.pyc",
        "v/pyvenv.cfg",
        "v/x.py",
        "runs/r/x",
        "mine/job-effective.yaml",
        "w.npy",
        "data/x",
    )
    filled(tmp_path, *goes, *stays)
    (tmp_path / ".rljobignore").write_text("# large\n\n*.npy\n/data\n")
    (tmp_path / "games/latest.py").symlink_to("maze.py")
    code = pack(tmp_path)
    assert list(code.names) == sorted((*goes, "games/latest.py"))
    for each in goes:
        os.utime(tmp_path / each, (1, 1))
    assert pack(tmp_path).digest == code.digest, "times are no code"
    (tmp_path / "env.py").chmod(0o755)
    assert pack(tmp_path).digest != code.digest


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda at: os.truncate(filled(at, "data/huge.bin") / "data/huge.bin", 2 << 30), "huge.bin' .2,147,483,648"),
        (lambda at: (at / "noise").write_bytes(os.urandom(1_100_000)), "1,1[0-9,]+ compressed; allowed: 1,000,000"),
        (lambda at: [(at / f"{k}").touch() for k in range(5_001)], "more than 5,000 files, 5,0.. of them in '.'"),
        (lambda at: [os.truncate(filled(at, f"many/{k}") / f"many/{k}", 99_000) for k in range(200)], "many/' .19,800,000"),
        (lambda at: (at / ".rljobignore").write_text("!env.py"), "!env.py: a pattern can't take files back in"),
        (lambda at: (at / "out").symlink_to("/etc"), "out: a link to /etc, which is not in the folder"),
        (lambda at: (filled(at, "a/b") / "a/up").symlink_to(".."), "a/up: a link to a folder that it lies in"),
        (lambda at: (at / ".rljobignore").write_text("env.py"), "env.py: hidden or in .rljobignore"),
    ],
)  # fmt: skip
def test_a_folder_that_no_job_can_take_is_refused_in_a_sentence(
    tmp_path: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(filled(tmp_path, "env.py"))
    with pytest.raises(UsageError, match=words):
        with_code(as_found(job("env.py:make"), (), tmp_path), tmp_path)


def test_files_are_named_from_the_folder_and_nothing_goes_along_where_none_is_named(tmp_path: Path) -> None:
    folder = filled(tmp_path / "job", "games/env.py", "maze/__init__.py", "rl/x.py")
    filled(tmp_path, "outside.py")

    def taken(id: str, **spec: object) -> tuple[str, bool]:
        found, code = with_code(as_found(job(id, **spec), (), folder), folder)
        return found["spec"]["environment"]["id"], code is not None

    assert taken("games/env.py:make") == ("games/env.py:make", True)
    assert taken(f"{folder}/games/env.py:make") == ("games/env.py:make", True)
    assert taken("maze.env:Maze") == ("maze.env:Maze", True)
    for id in ("CartPole-v1", "ALE/Pong-v5", "of_the_image.py:make", "gym_trading:stocks-v0"):
        assert taken(id) == (id, False)
    assert taken("CartPole-v1", image="rl:1") == ("CartPole-v1", False), "an image is no module"
    assert taken("maze:Maze", code={"configMap": "mine"})[1] is False
    with pytest.raises(UsageError, match=r"outside.py:make: not in .*job, the folder of the manifest"):
        taken("../outside.py:make")


ENTERS = """
import typer
from rljob.archive import enter
from rljob.command_errors import one_line_errors
from rljob.loading import loaded

def main():
    with one_line_errors(78):
        enter()
        print(loaded("env.py:make")(), loaded("games/maze.py:make")(), open("map.txt").read())

typer.run(main)
"""


def entered(file: Path) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-c", ENTERS], env={**os.environ, VARIABLE: str(file), "TMPDIR": str(file.parent)},
        cwd="/", capture_output=True, text=True,
    )  # fmt: skip
    return ended.returncode, (ended.stdout + ended.stderr).strip()


def test_a_pod_works_in_the_folder_as_it_was_packed(tmp_path: Path) -> None:
    folder = filled(tmp_path / "job", "games/__init__.py", *ODD)
    (folder / "env.py").write_text("import beside\ndef make(): return beside.NAME\n")
    (folder / "beside.py").write_text("NAME = 'own'\n")
    (folder / "games/maze.py").write_text("from . import __name__ as package\ndef make(): return package\n")
    (folder / "map.txt").write_text("the map")
    code = pack(folder)
    file = tmp_path / f"{code.digest}.tar.gz"
    missing = f"there is no such ConfigMap in the job's namespace, or it has no entry {ENTRY}"
    assert entered(file) == (1, f"rljob: spec.code.configMap: {missing}"), "tried again, as it may yet come"
    file.write_bytes(code.content)
    assert entered(file) == (0, "own games the map")
    other = file.replace(tmp_path / f"{'0' * 64}.tar.gz")
    assert entered(other) == (
        78,
        f"rljob: spec.code.digest: sha256:{'0' * 64}, and {ENTRY} in the ConfigMap has sha256:{code.digest}",
    )


def test_an_archive_by_hand_can_not_leave_its_folder(tmp_path: Path) -> None:
    link = tarfile.TarInfo("out")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    for entry in (tarfile.TarInfo("../evil.py"), link):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            tar.addfile(entry)
        file = tmp_path / f"{hashlib.sha256(out.getvalue()).hexdigest()}.tar.gz"
        file.write_bytes(out.getvalue())
        code, said = entered(file)
        assert (code, said.count("\n")) == (78, 0)
        assert said.startswith(f"rljob: spec.code.configMap: {ENTRY} can't be unpacked: '{entry.name}' is a link or"), (
            said
        )
    assert not (tmp_path / "evil.py").exists()
