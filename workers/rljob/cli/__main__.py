"""``python -m rljob.cli``: the data plane's command line without the operator's package."""

from __future__ import annotations

from rljob.cli.app import app

if __name__ == "__main__":
    app(prog_name="rljob")
