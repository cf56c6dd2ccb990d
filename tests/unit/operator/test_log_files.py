"""The end of a log, and what is appended to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob_operator.local import log_files
from rljob_operator.local.log_files import LogFollower, bound, tail


def test_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "actor-0.log"
    assert tail(log, 3) == []
    log.write_text("".join(f"line {k}\n" for k in range(10_000)))
    assert (tail(log, 2), tail(log, 0), tail(log, 20_000)[0]) == (["line 9998", "line 9999"], [], "line 0")
    log.write_bytes(b"caf\xe9\nend")
    assert tail(log, 5) == ["caf\ufffd", "end"]


def test_following(tmp_path: Path) -> None:
    log = tmp_path / "actor-0.log"
    follower = LogFollower(log, 1)
    assert list(follower.new_lines()) == [], "it may come later"
    log.write_text("one\ntwo\n")
    assert list(follower.new_lines()) == ["two"]
    with log.open("a") as file:
        file.write("three\nfo")
    assert list(follower.new_lines()) == ["three"]
    with log.open("a") as file:
        file.write("ur\n")
    assert list(follower.new_lines()) == ["four"]
    log.write_text("new\n")
    assert list(follower.new_lines()) == ["new"], "it was begun anew"


def test_a_log_that_has_become_too_long_keeps_its_end_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "LARGEST_BYTES", 1000)
    monkeypatch.setattr(log_files, "_KEPT_BYTES", 100)
    path = tmp_path / "actor-0.log"
    with path.open("a", buffering=1) as writer:
        writer.write("".join(f"line {n:04}\n" for n in range(90)))
        bound(path)
        assert path.stat().st_size == 900, "as long as it may be"
        writer.write("".join(f"line {n:04}\n" for n in range(90, 120)))
        bound(path)
        writer.write("line 0120\n")
    told, *kept = path.read_text().splitlines()
    assert told == "rljob: 1,110 bytes of this log are gone; what prints so much?"
    assert kept == [f"line {n:04}" for n in range(111, 121)]
    with pytest.raises(OSError, match="No such file"):
        bound(tmp_path / "none.log")
