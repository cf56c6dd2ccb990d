"""How a command fails: one line on stderr that says what to change, a traceback only for those who ask, and a
meaningful exit code."""

import select
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from rljob.api import ManifestError
from rljob.api.exit_codes import EXIT_FAILURE, EXIT_INVALID
from rljob.errors import CommandRefused, UsageError, first_line, named
from rljob.loading import authors_line
from rljob.threads import ThreadEnded

_INPUT_PROBLEMS = (
    ("rljob.envs.base", "EnvironmentProblem"),
    ("rljob.api.networks", "NetworkProblem"),
    ("rljob.checkpoints.names", "CheckpointProblem"),
    ("rljob.checkpoints.names", "StorageNotInstalled"),
    ("rljob.learner.device", "DeviceProblem"),
    ("rljob.wire.security", "SecurityProblem"),
)


class Debug:
    """Whether failures show tracebacks; set once by the option before the command."""

    enabled = False


_OUTSIDE_PROBLEMS = (
    ("rljob.checkpoints.names", "StorageProblem"),
    ("rljob.learner.device", "DeviceMemoryProblem"),
)
"""Errors that are not about the input, and whose messages are complete: trying again later may help."""


@contextmanager
def one_line_errors(configuration_exit: int = EXIT_INVALID) -> Iterator[None]:
    """Turn every error of a command into a line and an exit code.

    Configuration problems (a manifest, an environment that cannot be made, an argument) exit with
    ``configuration_exit`` and show all
    their lines; anything else is a failure, exit 1.
    """
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):  # ends that were meant; Exceptions, too
        raise
    except SystemExit as end:
        where = authors_line(end)
        if where:  # a plug-in that ends its process, as an example's main does: else the reason would be lost
            _fail(f"{where}SystemExit: {end.code}", EXIT_FAILURE)
        raise
    except (ManifestError, UsageError) as error:
        _fail(str(error), error.exit_code if isinstance(error, CommandRefused) else configuration_exit)
    except Exception as error:  # the outermost frame of a command: nothing above it would show the error
        if isinstance(error, BrokenPipeError) and _reader_left():
            raise  # which ends without a word, as any program does in the middle of `rljob why | head`
        if _is_one_of(_INPUT_PROBLEMS, error):
            _fail(first_line(error), configuration_exit)
        if _is_one_of(_OUTSIDE_PROBLEMS, error):
            _fail(first_line(error), EXIT_FAILURE)
        if isinstance(error, ThreadEnded) and isinstance(error.__cause__, UsageError):
            _fail(str(error.__cause__), configuration_exit)  # the error is the same in whichever thread it was found
        where = authors_line(error)  # of the user's own code, which is where the user will look
        text = f"{where}{named(error)}" if where else first_line(error)
        _fail(f"{text}  (--debug shows where)", EXIT_FAILURE)


def _reader_left() -> bool:
    """Whether the program that standard output goes to has ended."""
    output = select.poll()
    output.register(1, 0)
    return bool(output.poll(0))


def _fail(text: str, code: int) -> None:
    if Debug.enabled:
        traceback.print_exc()
    sys.stderr.write(
        "".join(f"rljob: {line}\n" if not line.startswith(" ") else f"{line}\n" for line in text.splitlines())
    )
    raise typer.Exit(code)


def _is_one_of(problems: tuple[tuple[str, str], ...], error: Exception) -> bool:
    """Whether it is another room's error with a complete message, such as an environment that cannot be made.

    Asked by looking at what is loaded already, because importing those rooms is slow and a command that failed without
    them cannot have raised their errors.
    """
    for module, name in problems:
        problem = getattr(sys.modules.get(module), name, None)
        if isinstance(problem, type) and isinstance(error, problem):
            return True
    return False
