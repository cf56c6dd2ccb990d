"""The one way to start a Python process of this program.

It can import what its parent can, whatever lies in the current folder; gets order and environment, of any size, through a
descriptor; leads a session of its own; and ends when its parent does, unless it is to outlive it. This file is its program, too.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any, Final

SAFE_PATH: Final = "PYTHONSAFEPATH"
_LONGEST_BYTES: Final = 1 << 16
"""Of a variable that the process has from its beginning, as the dynamic loader's; longer ones, which the kernel may refuse, come
with the order."""


class Child(subprocess.Popen[bytes]):
    """A process that calls ``main(*arguments)`` of ``module`` and ends with the exit code that it answers.

    Args:
        title: what `ps` shows beside its program.
        orphaned: the signal that it gets at `leave` and at the end of its parent, however that comes: SIGTERM asks it to end,
            SIGKILL ends all that it has begun, None lets it go on.
        talks: ``main`` is given its end of ``link`` before ``arguments``; it is its to close.
        variables: of its environment, beside those of this process.
        stdin, stdout, stderr: as subprocess takes them.

    Raises OSError where the machine is full.
    """

    def __init__(
        self,
        module: str,
        *arguments: Any,
        title: str = "",
        orphaned: signal.Signals | None = signal.SIGTERM,
        talks: bool = False,
        variables: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        self.link, theirs = Pipe()
        order = (theirs.fileno(), talks, orphaned, module, arguments)
        file, program, environment = _ordered(title or module, {**os.environ, **(variables or {})}, order)
        with theirs, os.fdopen(file):
            super().__init__(
                program,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                pass_fds=(file, theirs.fileno()),
                start_new_session=True,
            )

    def leave(self) -> None:
        """Do with it what is done when this process ends."""
        self.link.close()


def become(title: str, module: str, *arguments: Any) -> None:
    """Make this process what a `Child` would be. It keeps its session, its output and its parent; never returns."""
    file, program, environment = _ordered(title, os.environ, (None, False, None, module, arguments))
    os.set_inheritable(file, True)
    os.execve(sys.executable, program, environment)


@contextmanager
def beginning_servers() -> Iterator[None]:
    """multiprocessing's servers that begin within have their sockets where a path is short enough. They look for no module in the
    current folder, as no `Child` does; forks have `SAFE_PATH` in their environment for that, and take it out."""
    from rljob.files import (
        parent_of_sockets,  # as a program this file knows no other until its order says where they are
    )

    before, tempfile.tempdir = tempfile.tempdir, parent_of_sockets()
    if not sys.flags.safe_path:
        os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH, None)
        tempfile.tempdir = before


def _importable() -> list[str]:
    """Where modules are looked for, as here, but first in the standard library: a user's file may have the name of a module that
    was loaded from there before (random.py)."""
    library = os.path.dirname(os.__file__)
    of_library = (library, os.path.join(library, "lib-dynload"))
    return sorted(map(os.path.abspath, sys.path), key=lambda each: each not in of_library)


def _ordered(
    title: str, environment: Mapping[str, str], order: tuple[Any, ...]
) -> tuple[int, tuple[str, ...], dict[str, str]]:
    """A file with the order, the command line that obeys it, and the environment for that."""
    long = {name: value for name, value in environment.items() if len(os.fsencode(value)) > _LONGEST_BYTES}
    file = os.memfd_create("order")
    os.write(file, pickle.dumps((_importable(), long)) + pickle.dumps(order))
    os.lseek(file, 0, os.SEEK_SET)
    short = {name: value for name, value in environment.items() if name not in long}
    return file, (sys.executable, "-P", __file__, str(file), title), short


def _begin(order: int) -> Any:
    with open(order, "rb") as file:
        sys.path[:], long = pickle.load(file)
        os.environ.update(long)
        link, talks, orphaned, module, arguments = pickle.load(file)
    if link is not None:
        os.set_inheritable(link, False)
        parent = Connection(link)
        arguments = (parent, *arguments) if talks else arguments
        if orphaned is not None:
            from rljob.threads import start_contained

            start_contained("parent", lambda: _end_with(parent, orphaned))
    try:
        return import_module(module).main(*arguments)
    except Exception as end:
        if not hasattr(end, "exit_code"):  # that of a command, whose line is written
            raise
        return end.exit_code


def _end_with(parent: Connection[Any, Any], number: signal.Signals) -> None:
    """Wait until ``parent``, which sends nothing, closes its end."""
    parent.poll(None)
    (os.killpg if number is signal.SIGKILL else os.kill)(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(_begin(int(sys.argv[1])))
