"""``rljob mcp``: the verbs as tools of an agent, by the Model Context Protocol over standard input and output."""

import functools
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rljob.api import ManifestError
from rljob.api.document import dump_document, parse_document
from rljob.api.examples import examples
from rljob.api.problems import ABSENT
from rljob.command_errors import one_line_errors
from rljob.errors import UsageError

from rljob_operator.python.start import as_written, run as start
from rljob_operator.verbs.options import ContextOption, KubeconfigOption

READS: Final = ("examples", "show", "explain", "validate", "get", "why", "top", "logs")
WRITES: Final = ("run", "stop", "report", "size")
"""Tools that start, end or write something, or that run what a manifest names."""
_INTRODUCTION: Final = (
    "rljob trains reinforcement-learning agents from a manifest. Begin with `examples`; `show` prints one, to change it; "
    "`explain` has every field. `run` returns at once; `get` and `why` tell how it goes, until Complete or Failed is True. "
    "Without `namespace` runs of this machine are meant, by their folders; with it jobs of a cluster, by their names."
)
_CODE: Final = re.compile(r"(/.*?\.py):\w+")


def mcp(
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help=f"Also {', '.join(WRITES)}, and code that a manifest names.")
    ] = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Serve rljob to an agent, such as a coding assistant, by the Model Context Protocol: validate, explain, get, why and others
    as tools. The agent's program starts it, in the folder whose manifests and runs it may see.

    Without --allow-writes nothing is started or changed, and no environment is made.

    Example:

        claude mcp add rljob -- rljob mcp --allow-writes
    """
    with one_line_errors():
        try:
            from mcp.server.mcpserver import MCPServer
            from mcp_types import ToolAnnotations
        except ImportError:
            raise UsageError("rljob mcp needs the package mcp: pip install 'rljob[mcp]'") from None
        cluster = [
            f"--{name}={value}"
            for name, value in (("context", context), ("kubeconfig", kubeconfig))
            if value is not None
        ]
        tools = Tools(Path.cwd().resolve(), cluster, allow_writes)
        server = MCPServer("rljob", version=version("rljob"), instructions=_INTRODUCTION, log_level="WARNING")
        for name in (*READS, *(WRITES if allow_writes else ())):
            hints = ToolAnnotations(read_only_hint=name in READS, destructive_hint=name == "stop")
            tool = _telling(getattr(tools, name))
            server.add_tool(tool, description=inspect.getdoc(tool), annotations=hints, structured_output=False)
        server.run("stdio")


def _telling(tool: Callable[..., str]) -> Callable[..., str]:
    """The tool, whose refusals are told to the agent."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def told(*args: Any, **kwargs: Any) -> str:
        try:
            return tool(*args, **kwargs)
        except (ManifestError, UsageError) as problem:
            raise ToolError(str(problem)) from None

    return told


class Tools:
    """What an agent may call. Docstrings and parameters are the agent's only documentation.

    Args:
        root: the folder that paths may not leave.
        cluster: options that name the cluster.
        allow_writes: whether code that a manifest names may run.
    """

    def __init__(self, root: Path, cluster: list[str], allow_writes: bool) -> None:
        self._root, self._cluster, self._allow_writes = root, cluster, allow_writes

    def examples(self) -> str:
        """List the example manifests, whose names `show`, `validate` and `run` take."""
        return self._verb("examples")

    def show(self, name: str) -> str:
        """Print the manifest of an example or a preset as YAML, to read or change it."""
        return self._verb("render", "--", self._name(name))

    def explain(self, field: str = "") -> str:
        """Explain a field of the manifest (algorithm.learningRate), a section (actors) or all (empty): type, default, meaning.
        `preset` lists the tested settings; `environment.id=Taxi-v4` shows an environment's observations and actions."""
        if ":" in field and not self._allow_writes:
            raise UsageError(f"{field}: explaining your own code runs it, which needs rljob mcp --allow-writes")
        return self._verb("explain", "--", field)

    def validate(self, manifest: str, set: dict[str, Any] | None = None) -> str:
        """Check a manifest: every mistake with its path and what is allowed.

        Args:
            manifest: YAML, a file below the server's folder, or the name of an example or a preset.
            set: fields to change, by their paths: {"algorithm.learningRate": 0.0005}. null removes one.
        """
        words = () if self._allow_writes else ("--no-environment",)
        return self._verb("validate", *words, "-", stdin=dump_document(self._read(manifest, set)[1]))

    def get(self, run: str = "", namespace: str = "") -> str:
        """The state of a run or job as JSON, with spec, status and conditions; without `run` a list of all."""
        return self._verb("get", "-o", "json", *(() if run or namespace else ("--all",)), *self._job(run, namespace))

    def why(self, run: str = "", namespace: str = "") -> str:
        """Explain the state of a run or job: why it failed, waits or is slow, its last failures, and what would speed it up."""
        return self._verb("why", *self._job(run, namespace))

    def top(self, run: str = "", namespace: str = "") -> str:
        """Live figures of a run or job: speeds, queue, policy lag, memory of each process."""
        return self._verb("top", "--once", *self._job(run, namespace))

    def logs(self, run: str = "", namespace: str = "", tail: int = 20) -> str:
        """The last lines that each actor, learner and so on has written."""
        return self._verb("logs", f"--tail={tail}", *self._job(run, namespace))

    def run(self, manifest: str, set: dict[str, Any] | None = None, namespace: str = "") -> str:
        """Start training and return its folder, or on a cluster its name, at once. Arguments as of `validate`."""
        given, changed = self._read(manifest, set)
        place = dict(word[2:].split("=", 1) for word in self._place(namespace))
        started = start(given, set=set, **place)  # type: ignore[arg-type]
        return f"started {started.folder or changed['metadata']['name']}; `get` and `why` tell how it goes"

    def stop(self, run: str, namespace: str = "") -> str:
        """End a run or job in good order; it can be resumed."""
        return self._verb("stop", *self._job(run, namespace))

    def report(self, run: str, namespace: str = "") -> str:
        """Write report.html of a run or job: learning curve, speeds, the bottleneck in a sentence. Returns its path."""
        return self._verb("report", *self._job(run, namespace))

    def size(self, manifest: str, set: dict[str, Any] | None = None) -> str:
        """Measure for a minute what a job needs: cores, memory, network, actors that pay off. Arguments as of `validate`."""
        return self._verb("size", "-", stdin=dump_document(self._read(manifest, set)[1]))

    def _place(self, namespace: str) -> list[str]:
        return [f"--namespace={namespace}", *self._cluster] if namespace else []

    def _job(self, run: str, namespace: str) -> list[str]:
        return [*self._place(namespace), *(["--", run if namespace else self._name(run)] if run else [])]

    def _name(self, path: str) -> str:
        """Raises UsageError for a path out of the folder; rljob's own examples may be named."""
        whole = (self._root / Path(path).expanduser()).resolve()
        if not whole.is_relative_to(self._root) and whole.parent not in {
            each.parent.resolve() for each in examples().values()
        }:
            raise UsageError(f"{path} is outside of {self._root}, where rljob mcp was started")
        return path

    def _read(self, manifest: str, changes: Mapping[str, Any] | None) -> tuple[str | dict[str, Any], dict[str, Any]]:
        """A manifest as it was given, and with its changes. Raises ManifestError, and UsageError where it or code that it names
        lies outside."""
        is_text = "\n" in manifest or manifest.lstrip().startswith("{")
        given = parse_document(manifest.encode(), "manifest") if is_text else self._name(manifest)
        changed, _ = as_written(
            given, [(path, ABSENT if value is None else value) for path, value in (changes or {}).items()]
        )
        for path in _CODE.findall(dump_document(changed)):
            self._name(path)
        return given, changed

    def _verb(self, *words: str, stdin: str = "") -> str:
        """What `rljob` prints. Raises UsageError with its words."""
        command = [sys.executable, "-P", "-m", "rljob_operator", *words]  # no file of the folder stands for a package
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=self._root)
        if done.returncode:
            raise UsageError(f"{done.stdout}{done.stderr}".strip() or f"rljob {words[0]}: exit code {done.returncode}")
        return done.stdout + done.stderr
