"""``python -m rljob.cli``: the roles' command line without the operator's package, as a pod and the local supervisor
start it."""

from __future__ import annotations

from rljob.cli.app import app

if __name__ == "__main__":
    app(prog_name="rljob")
