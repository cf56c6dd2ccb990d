"""The command line as it is typed, in this process."""

from rljob_operator.cli import app
from typer.testing import CliRunner, Result


def invoke(*words: object, env: dict[str, str] | None = None, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env=env, input=stdin)


def printed(*words: object, env: dict[str, str] | None = None, stdin: str | None = None) -> str:
    """What a command that succeeds prints."""
    result = invoke(*words, env=env, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words: object, stdin: str | None = None) -> str:
    """What stderr says where a command line is wrong: exit code 2, nothing on stdout, no traceback."""
    result = invoke(*words, stdin=stdin)
    assert (result.exit_code, result.stdout, "Traceback" in result.stderr) == (2, "", False), result.output
    return result.stderr
