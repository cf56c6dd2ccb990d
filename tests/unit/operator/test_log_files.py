"""The end of a log, and what is appended to it."""

from __future__ import annotations

from pathlib import Path

from rljob_operator.local.log_files import LogFollower, tail


def test_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "actor-0.log"
    assert tail(log, 3) == []
    log.write_text("".join(f"line {k}\n" for k in range(10_000)))
    assert tail(log, 2) == ["line 9998", "line 9999"]
    assert tail(log, 0) == []
    assert tail(log, 20_000)[0] == "line 0"
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
