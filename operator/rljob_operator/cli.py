"""The `rljob` command: the workers' commands, `run`, which needs the controller, and the verbs; `kubectl rljob` has these."""

import io
import os
import sys
from collections.abc import Sequence

import typer
from rljob.cli.app import COMMANDS, HIDDEN, LEARNED, MANIFEST, TRAIN, Commands, app, common, group_of

_STEER: Commands = {
    "get": (TRAIN, "rljob_operator.verbs.get:get"),
    "top": (TRAIN, "rljob_operator.verbs.get:top"),
    "why": (TRAIN, "rljob_operator.verbs.why:why"),
    "profile": (TRAIN, "rljob_operator.verbs.profile:profile"),
    "logs": (TRAIN, "rljob_operator.verbs.get:logs"),
    "suspend": (TRAIN, "rljob_operator.verbs.change:suspend"),
    "resume": (TRAIN, "rljob_operator.verbs.change:resume"),
    "scale": (TRAIN, "rljob_operator.verbs.change:scale"),
    "set": (TRAIN, "rljob_operator.verbs.change:set_fields"),
    "checkpoint": (TRAIN, "rljob_operator.verbs.change:checkpoint"),
    "stop": (TRAIN, "rljob_operator.verbs.change:stop"),
}
_LEARNED: Commands = {"export": (LEARNED, "rljob_operator.verbs.export:export")}
COMMANDS |= {
    "validate": (MANIFEST, "rljob_operator.verbs.render:validate"),
    "render": (MANIFEST, "rljob_operator.verbs.render:render"),
    "size": (MANIFEST, "rljob_operator.verbs.size:size"),
    "run": (TRAIN, "rljob_operator.verbs.run_command:run"),
    "demo": (TRAIN, "rljob_operator.verbs.demo:demo"),
    **_STEER,
    "track": (HIDDEN, "rljob_operator.verbs.track:track"),
    **_LEARNED,
    "report": (LEARNED, "rljob_operator.verbs.report:report"),
    "mcp": (HIDDEN, "rljob_operator.python.agents:mcp"),
    "operator": (HIDDEN, "rljob_operator.verbs.operator:operator"),
}


plugin = typer.Typer(
    name="kubectl rljob",
    cls=group_of({**_STEER, **_LEARNED}),
    help="Watch and steer RLJobs: the verbs of `rljob`, of the namespace that the kubeconfig's context names unless -n does.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
plugin.callback()(common)


def main(words: Sequence[str] | None = None) -> None:
    """Entry point of `rljob`; ``words`` in place of its command line."""
    while (
        file := os.open(os.devnull, os.O_RDWR)
    ) <= 2:  # a standard stream that is closed; a file would be taken for it
        os.set_inheritable(file, True)
    os.close(file)
    sys.stdout, sys.stderr = sys.stdout or open(1, "w"), sys.stderr or open(2, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr has it: no character of a path ends a command
    app(words, prog_name="rljob" if words is not None else None)


def kubectl_plugin() -> None:
    """Entry point of `kubectl-rljob`, which kubectl starts for `kubectl rljob`."""
    from rljob_operator.verbs.options import Meaning

    Meaning.cluster = True
    plugin(prog_name="kubectl rljob")
