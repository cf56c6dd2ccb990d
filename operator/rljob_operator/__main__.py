"""The `rljob` command, which is also what the container of every pod runs."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. ``rljob worker`` does without the other commands: importing them takes a tenth of a pod's start."""
    if sys.argv[1:2] == ["worker"]:
        from rljob.roles.command import app as roles

        roles(sys.argv[2:], prog_name="rljob worker")
    else:
        from rljob_operator import cli

        cli.main()


if __name__ == "__main__":
    main()
