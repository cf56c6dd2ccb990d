"""`rljob mcp` over standard input and output, asked by a client that knows only the protocol: from `tools/list` alone it solves
CartPole in an empty folder and has ten faults named."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import eventually

pytest.importorskip("mcp")
pytestmark = pytest.mark.timeout(900)

GAME = """
import ctypes, gymnasium, numpy
class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, fault=""):
        self.fault, self.steps = fault, 0
    def reset(self, *, seed=None, options=None):
        if self.fault == "reset": raise RuntimeError("the board is not set up")
        return numpy.zeros(4 if self.fault == "shape" else 3, numpy.float32), {}
    def step(self, action):
        self.steps += 1
        if self.steps > 300 and self.fault == "crash": return 1 / 0
        if self.steps > 300 and self.fault == "segfault": ctypes.string_at(0)
        if self.steps > 300 and self.fault == "memory": raise MemoryError("no room for 64 GiB")
        return numpy.zeros(3, numpy.float32), 1.0, self.steps % 20 == 0, False, {}
"""
CHECKED = {
    "{id: CartPol-v1}": "did you mean CartPole-v1",
    "{id: CartPole-v1}, algoritm: {type: PPO}": "spec.algoritm: got {'type': 'PPO'}; unknown field; did you mean 'algorithm'?",
    "{id: CartPole-v1}, algorithm: {learningRate: -1}": "spec.algorithm.learningRate: got -1; allowed: a number above 0 to 1",
    "{id: CartPole-v1}, algorithm: {type: SAC}": "is about continuous actions",
    "{id: 'broken.py:make'}": "broken.py:1, in <module>: ModuleNotFoundError: No module named 'nowhere'",
    "{id: 'game.py:Game', kwargs: {fault: reset}}": "game.py:9, in reset: RuntimeError: the board is not set up",
    "{id: 'game.py:Game', kwargs: {fault: shape}}": "expected an observation float32 [3]",
}
TRAINED = {"crash": "ZeroDivisionError", "segfault": "killed by SIGSEGV", "memory": "MemoryError: no room for 64 GiB"}


def manifest(environment: str, name: str = "mine") -> str:
    return f"apiVersion: rljob.dev/v1alpha1\nkind: RLJob\nmetadata: {{name: {name}}}\nspec: {{environment: {environment}}}\n"


class Agent:
    """A client that speaks JSON-RPC, a message a line, to a server of this folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "rljob_operator", "mcp", *options]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)
        self.ask(
            "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"}
        )
        self._send(method="notifications/initialized")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._send(id=1, method=method, params=parameters)
        return dict(json.loads(self.server.stdout.readline())["result"])  # nothing else is written there

    def does(self, tool: str, *, fails: bool = False, **arguments: Any) -> str:
        said = self.ask("tools/call", name=tool, arguments=arguments)
        assert said.get("isError", False) is fails, said
        return str(said["content"][0]["text"])

    def _send(self, **message: Any) -> None:
        self.server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.server.stdin.flush()


@contextmanager
def agent(folder: Path, *options: str) -> Iterator[Agent]:
    """Ended as clients end a server."""
    started = Agent(folder, *options)
    with started.server:
        yield started
        started.server.stdin.close()
        assert started.server.wait(60) == 0


def test_without_writes_nothing_is_run(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    with agent(folder) as reader:
        looks_only(reader, tmp_path)
    assert not (tmp_path / "was-run").exists()


def looks_only(agent: Agent, beside: Path) -> None:
    tools = {each["name"]: each for each in agent.ask("tools/list")["tools"]}
    assert all(each["annotations"]["readOnlyHint"] and each["description"] for each in tools.values())
    assert not tools.keys() & {"run", "stop", "report", "size"}
    assert "Unknown tool" in agent.does("run", fails=True, manifest="cartpole-ppo")

    (beside / "other.py").write_text(f"open({str(beside / 'was-run')!r}, 'w')\ndef make(): pass\n")
    for path in (str(beside / "other.py"), "../other.py"):
        assert "is outside of" in agent.does("validate", fails=True, manifest=manifest(f"{{id: '{path}:make'}}"))
    for tool, name in (("validate", "manifest"), ("show", "name"), ("why", "run")):
        assert "is outside of" in agent.does(tool, fails=True, **{name: "../other.py"})
    assert "needs rljob mcp --allow-writes" in agent.does("explain", fails=True, field="../other.py:make")
    assert "os:abort" in agent.does("validate", manifest=manifest("{id: 'os:abort'}")), "it is not called"
    assert "did you mean spec.algorithm.learningRate?" in agent.does("explain", fails=True, field="learningRat")


@pytest.mark.long
def test_cartpole_is_solved_and_faults_are_named(tmp_path: Path) -> None:
    with agent(tmp_path, "--allow-writes") as writer:
        solves_cartpole(writer)
        (tmp_path / "game.py").write_text(GAME)
        (tmp_path / "broken.py").write_text("import nowhere\n")
        for environment, words in CHECKED.items():
            assert words in writer.does("validate", fails=True, manifest=manifest(environment))
        for fault, words in TRAINED.items():
            made = manifest(f"{{id: 'game.py:Game', kwargs: {{fault: {fault}}}}}", fault)
            run = started(writer, manifest=made, set={"successPolicy": {"rawFrames": 1_000_000}})
            eventually(lambda run=run, words=words: words in writer.does("why", run=run), fault, 200)
            writer.does("stop", run=run)


def solves_cartpole(agent: Agent) -> None:
    assert len(agent.ask("tools/list")["tools"]) <= 12
    assert "cartpole-ppo" in agent.does("examples")
    text = agent.does("show", name="cartpole-ppo")
    assert "ok, PPO on CartPole-v1" in agent.does("validate", manifest=text)
    run = started(agent, manifest=text)
    eventually(lambda: "Complete (TargetReturnReached)" in agent.does("why", run=run), "no verdict", 300)
    assert json.loads(agent.does("get", run=run))["status"]["progress"]["percent"] == 100
    assert Path(agent.does("report", run=run).strip()).name == "report.html"


def started(agent: Agent, **arguments: Any) -> str:
    return agent.does("run", **arguments).split()[1].rstrip(";")
