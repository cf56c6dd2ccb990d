"""``python -m rljob.cli``: the data plane's command line without the operator's package."""

from rljob.cli.app import app

if __name__ == "__main__":
    app(prog_name="rljob")
