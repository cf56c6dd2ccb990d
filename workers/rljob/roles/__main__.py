"""``python -m rljob.roles ROLE``: one role of a job, as a pod and the local supervisor start it."""

from __future__ import annotations

from rljob.roles.command import app

if __name__ == "__main__":
    app(prog_name="rljob worker")
