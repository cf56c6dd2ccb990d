"""The console of a run."""

import contextlib
import os
import sys

from rich.console import Console


class RunConsole(Console):
    """Shows a run, which goes on when the program that reads this has ended, as in `rljob run job.yaml | head`."""

    def on_broken_pipe(self) -> None:
        """Show nothing more; say so on standard error, which may lead to the same place."""
        self.quiet = True
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        with contextlib.suppress(OSError):
            sys.stderr.write("rljob: the output has no reader any more; the run goes on (rljob get shows it)\n")


def say(console: Console, text: str) -> None:
    """Print a line as it is; nothing where the terminal is gone, and with it the reader."""
    with contextlib.suppress(OSError):
        console.print(text, highlight=False, markup=False, soft_wrap=True)
