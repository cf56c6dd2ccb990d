"""Threads: one that ends too early is heard of by name, one that serves a client harms no other; and the cores they may use."""

import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.threads import SupervisedThread, ThreadEnded, check_threads, start_contained, usable_cores


def failing() -> None:
    raise KeyError("evaluation")


def ended(body: Callable[[], None], until: threading.Event | None = None) -> SupervisedThread:
    """A thread that has run to its end; the test closes it."""
    over = threading.Event()
    thread = SupervisedThread("worker-bee", body, until=until, ended=over.set)
    thread.start()
    thread._thread.join(20)
    assert not thread.alive
    assert over.is_set() == thread.failed, "a thread that waits is woken by a failure"
    return thread


def test_what_it_raised_is_raised_again_with_its_name() -> None:
    thread = ended(failing)
    for check in (thread.check, check_threads, check_threads):
        with pytest.raises(ThreadEnded, match=r"^thread worker-bee has ended: KeyError: 'evaluation'$") as raised:
            check()
        assert isinstance(raised.value.__cause__, KeyError)
    thread.close()
    check_threads()


def test_returning_too_early_is_a_failure_too() -> None:
    thread = ended(lambda: None, until=threading.Event())
    with pytest.raises(ThreadEnded, match="returned without being asked to"):
        check_threads()
    thread.close()


def test_an_end_that_was_asked_for_and_one_that_nobody_waits_for_are_none() -> None:
    asked = threading.Event()
    asked.set()
    for thread in (ended(lambda: None, until=asked), ended(lambda: None)):
        assert not thread.failed
        check_threads()
        assert thread.close()


def test_only_the_thread_that_started_it_answers_for_it() -> None:
    heard: list[BaseException] = []

    def other() -> None:
        thread = ended(failing)
        with pytest.raises(ThreadEnded) as error:
            check_threads()
        heard.append(error.value)
        thread.close()
        check_threads()

    another = threading.Thread(target=other)
    another.start()
    another.join(20)
    assert len(heard) == 1
    check_threads()


def test_one_that_was_closed_by_another_thread_is_answered_for_no_longer() -> None:
    closer = threading.Thread(target=ended(failing).close)
    closer.start()
    closer.join(20)
    check_threads()


def test_even_an_exit_is_heard_of(caplog: pytest.LogCaptureFixture) -> None:
    def leave() -> None:
        raise SystemExit(3)

    with caplog.at_level(logging.ERROR):
        thread = ended(leave)
    with pytest.raises(ThreadEnded, match="SystemExit: 3"):
        thread.check()
    thread.close()
    assert re.search("(?s)thread worker-bee failed.*in leave", caplog.text), "with its traceback"


def test_a_contained_failure_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        start_contained("one-answer", failing).join(20)
    check_threads()
    assert re.search("(?s)thread one-answer failed.*in failing", caplog.text)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000\n"}, 64),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "9900000 100000\n"}, 64),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_a_limit_of_the_control_group_counts(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores
