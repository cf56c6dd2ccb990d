"""A fault in any thread of any role: the role ends, and says which thread and why. The threads are found in the code."""

import ast
import asyncio
import ctypes
import functools
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zmq
from rljob.api import RLJob, dump_manifest, load_manifest
from rljob.checkpoints import store as checkpoint
from rljob.learner import saver
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.roles.actor import run_actor
from rljob.roles.evaluator import run_evaluator
from rljob.roles.inference import run_inference
from rljob.roles.learner import run_learner
from rljob.roles.options import RoleOptions
from rljob.roles.replay import run_replay
from rljob.threads import SupervisedThread, ThreadEnded
from rljob.wire import load_keys, security
from rljob_operator.kube.apiserver.client import Page
from rljob_operator.kube.watch.intake import Intake
from rljob_operator.kube.watch.kopf_watch import KopfWatch
from rljob_operator.local.substrate import MemberPolls
from rljob_operator.polls.poll import Alive
from rljob_operator.polls.reach import Direct

from tests.support.paths import EXAMPLES, ROOT
from tests.support.role_threads import ENDPOINTS, RoleThreads, cartpole
from tests.support.waiting import eventually, raising

IMPALA = EXAMPLES / "cartpole-impala.yaml"
SECONDS = 60.0


Role = Callable[[RoleOptions, threading.Event], None]


class Fault(BaseException):
    """Raised into a thread from outside; nothing catches it by mistake."""


@dataclass(frozen=True)
class Case:
    """``thread`` of ``role``, started as ``name`` in ``job`` without any peer."""

    thread: str
    role: Role
    name: str
    job: Callable[[], RLJob] = cartpole
    options: dict[str, Any] = field(default_factory=dict)


def central() -> RLJob:
    return cartpole(actors={"inference": "Central"})


def impala() -> RLJob:
    return load_manifest(IMPALA)


CASES = [
    Case("replay-telemetry", run_replay, "replay-0"),
    Case("replay-log", run_replay, "replay-0", options={"redis": None}),
    Case("zap", run_replay, "replay-0", options={"keys": "replay"}),
    Case("learner-telemetry", run_learner, "learner"),
    Case("weight-server", run_learner, "learner"),
    Case("replay-client", run_learner, "learner"),
    Case("epoch-watch", run_learner, "learner"),
    Case("inference", run_learner, "learner", job=central),
    Case("zap", run_learner, "learner", options={"keys": "learner"}),
    Case("unroll-queue", run_learner, "learner", job=impala),
    Case("actor-telemetry", run_actor, "actor-0"),
    Case("weight-relay", run_actor, "actor-0", options={"node": "n", "address": "127.0.0.1"}),
    Case("evaluator-telemetry", run_evaluator, "evaluator"),
    Case("inference-telemetry", run_inference, "inference-0", job=central),
    Case("zap", run_inference, "inference-0", job=central, options={"keys": "inference"}),
]

ELSEWHERE = {
    "checkpoint": "test_a_checkpoint_thread_that_dies_ends_the_learner",
    "member-polls": "test_a_controller_hears_that_nobody_asks_the_members",
    "intake": "test_an_operator_hears_that_nobody_watches_its_jobs",
}
CONTAINED = {
    "profile": "unit/telemetry/test_profiler.py",
    "*-answer": "unit/telemetry/test_server.py",
    "slow-trial": "integration/envs/test_processes.py",
    "signals": "unit/roles/test_command.py",
    "rljob-run-*": "integration/operator/test_python_front_door.py",
    "parent": "integration/operator/test_controller_killed.py",
    "rank-lost": "unit/learner/test_in_step.py",
    "fork": "unit/learner/test_course.py: whatever it raises is why the fork is refused",
}
WAITED_FOR = {
    "optim/sharded_optimizer.py": "test_what_a_share_of_an_update_raises_is_raised_in_the_loop",
    "python/handle.py": "unit/operator/python: what a verb raises is raised to the one who asked",
}


@functools.cache
def all_calls() -> list[tuple[str, Path, ast.Call]]:
    """Every call in the source, with the last word of what is called."""
    return [
        (getattr(node.func, "attr", getattr(node.func, "id", "")), path, node)
        for path in sorted([*(ROOT / "workers").rglob("*.py"), *(ROOT / "operator").rglob("*.py")])
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]


def calls(name: str) -> list[tuple[Path, ast.Call]]:
    return [(path, node) for word, path, node in all_calls() if word == name]


def names_of(starter: str) -> set[str]:
    """The names of the threads that ``starter`` is called for; what is filled in later is a star."""
    return {
        "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in getattr(word, "values", [word]))
        for word in (call.args[0] for _, call in calls(starter))
    }


def test_every_thread_of_the_code_is_tested_here() -> None:
    roles = {"replay", "learner", "actor", "evaluator", "inference"}
    tested = {case.thread for case in CASES} | set(ELSEWHERE)
    assert {f"{role}-telemetry" for role in roles} <= tested
    sources = {"replay-client", "unroll-queue"}  # whose names their base class is given
    named = {name for name in tested if not name.endswith("-telemetry")} - sources
    assert sources <= tested
    assert names_of("SupervisedThread") == named | {"*-telemetry", "*"}
    assert names_of("start_contained") == set(CONTAINED)


def test_nobody_starts_a_thread_in_another_way() -> None:
    assert {path.name for path, _ in calls("Thread")} == {"threads.py"}
    pools = {path for path, _ in calls("ThreadPoolExecutor")}
    assert {f"{path.parent.name}/{path.name}" for path in pools} == set(WAITED_FOR)
    others = ("Timer", "ThreadPool", "start_new_thread", "to_thread", "run_in_executor")
    assert [f"{path.parent.name}/{path.name}" for name in others for path, _ in calls(name)] == [
        "experiment/reconcile.py",
        "experiment/reconcile.py",
        "experiment/reconcile.py",
        "process/lease.py",
        "polls/poll.py",
    ], "the election raises its thread's errors, and what experiments compute aside is awaited at once"


@contextmanager
def started(case: Case, folder: Path) -> Iterator[RoleThreads]:
    roles = RoleThreads(case.job(), folder, {name: f"ipc://{folder}/{name}" for name in ENDPOINTS})
    options = dict(case.options)
    if "keys" in options:
        security.write_keys(folder / "keys.json")
        security.write_role_keys(folder / "keys.json", folder / "role.json", options["keys"])
        options["keys"] = folder / "role.json"
    roles.start(case.role, case.name, **options)
    try:
        yield roles
    finally:
        roles.stop(case.name)


def alive(name: str) -> threading.Thread | None:
    return next((thread for thread in threading.enumerate() if thread.name == name), None)


def at_work(name: str) -> threading.Thread | None:
    """The thread of that name once it is in its body: what is raised before that is no fault of it."""
    thread = alive(name)
    frame = sys._current_frames().get(thread.ident or 0) if thread is not None else None
    depth = 0
    while frame is not None and frame.f_code is not SupervisedThread._run.__code__:
        frame, depth = frame.f_back, depth + 1
    return thread if frame is not None and depth > 0 else None


def inject(thread: threading.Thread) -> None:
    """Raise Fault in ``thread``, where it is now or where it returns to when what it waits for has come."""
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Fault)) == 1


def knock(roles: RoleThreads, case: Case) -> None:
    """Wake the thread of the allow-list, which sleeps until a client comes."""
    role = {run_replay: "ingest", run_learner: "weights", run_inference: "inference"}[case.role]
    server_key = load_keys(roles.run_dir / "keys.json", case.options["keys"]).server().keys.public
    with zmq.Context.instance().socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.curve_serverkey = server_key
        stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
        stranger.connect(roles.endpoints[role])
        eventually(lambda: alive(case.thread) is None, "the fault has not reached the thread of the allow-list")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.thread}-of-{case.name}-{case.job.__name__}")
def test_a_fault_in_a_thread_ends_its_role_with_the_reason(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver, "WATCH_SECONDS", 0.2)  # at every look the thread may hear of the fault
    with started(case, tmp_path) as roles:
        thread = eventually(lambda: at_work(case.thread) or roles.failures, f"no thread {case.thread}")
        assert isinstance(thread, threading.Thread), roles.failures
        inject(thread)
        if case.thread == "zap":
            knock(roles, case)
        eventually(lambda: roles.failures, f"{case.name} goes on without {case.thread}")
    (failure,) = roles.failures
    assert isinstance(failure, ThreadEnded)
    assert str(failure) == f"thread {case.thread} has ended: Fault"
    assert isinstance(failure.__cause__, Fault)
    assert alive(case.thread) is None


def test_a_checkpoint_thread_that_dies_ends_the_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote: list[str] = []
    real = checkpoint.write

    def write(directory: Path, name: str, *rest: Any) -> Any:
        wrote.append(name)
        if len(wrote) == 1:
            raise RuntimeError("the library does not like these tensors")
        if len(wrote) == 3:
            raise Fault
        return real(directory, name, *rest)

    monkeypatch.setattr(checkpoint, "write", write)
    roles = RoleThreads(cartpole(), tmp_path, {name: f"ipc://{tmp_path}/{name}" for name in ENDPOINTS})
    roles.start(run_replay, "replay-0")
    roles.start(run_learner, "learner", announce=tmp_path / "learner.json")
    roles.start(run_actor, "actor-0")
    roles.until(lambda figures: figures.get("updates", 0) > 20, "updates")
    url = json.loads((tmp_path / "learner.json").read_text())["metrics_url"]

    def state() -> dict[str, Any]:
        with urllib.request.urlopen(f"{url}/status", timeout=SECONDS) as answer:
            return dict(json.load(answer)["checkpoint"])

    def ask(number: int) -> None:
        body = json.dumps({"sinceUnix": number}).encode()
        urllib.request.urlopen(f"{url}/checkpoint", data=body, timeout=SECONDS).close()
        eventually(lambda: len(wrote) == number, "no checkpoint is tried")

    ask(1)  # an error costs that checkpoint, and says so
    eventually(lambda: state()["state"] == "Failed", "the failure is not told")
    assert "RuntimeError: the library does not like these tensors" in state()["message"]
    ask(2)
    eventually(lambda: state()["state"] == "Valid", "the next checkpoint is not written")
    assert not roles.failures
    ask(3)
    eventually(lambda: roles.failures, "the learner goes on without its thread")
    assert str(roles.failures[0]) == "thread checkpoint has ended: Fault"
    for name in ("actor-0", "learner", "replay-0"):
        roles.stop(name)


def test_an_operator_hears_that_nobody_watches_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoJobs:
        """An API server is no part of what is asked here."""

        async def list(self, *_: Any, **__: Any) -> Page:
            return Page([], "1")

    async def story() -> None:
        access: Any = None
        client: Any = NoJobs()
        await asyncio.wait_for(Intake(access, client, None, lambda *_: None).run(sweep_seconds=0.05), SECONDS)

    monkeypatch.setattr(KopfWatch, "_keep_running", raising(Fault("nothing catches this")))
    with pytest.raises(ThreadEnded, match="intake"):
        asyncio.run(story())


@pytest.mark.parametrize("said", ["Fault$", "TypeError"])
def test_a_controller_hears_that_nobody_asks_the_members(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fault from outside, or a mistake in asking one of them."""
    if said == "TypeError":
        monkeypatch.setattr(Direct, "health", None)
    with closing(MemberPolls()) as polls:
        polls.watch([Alive("a", "http://127.0.0.1:1")], None)
        if said == "Fault$":
            inject(eventually(lambda: at_work("member-polls"), "no thread"))

        def once_more() -> None:
            """The loop contains a fault that reaches it in a callback of its own."""
            time.sleep(1.0)
            if said == "Fault$" and (thread := at_work("member-polls")) is not None:
                inject(thread)

        eventually(lambda: alive("member-polls") is None, "it does not end", between=once_more)
        with pytest.raises(ThreadEnded, match=f"^thread member-polls has ended: {said}"):
            polls.watch([], None)


def test_what_a_share_of_an_update_raises_is_raised_in_the_loop() -> None:
    def work(item: int) -> int:
        if item == 1:
            raise Fault
        return item

    threads = DataParallelThreads(2)
    assert threads.map(str, [0, 2]) == ["0", "2"]
    with pytest.raises(Fault):
        threads.map(work, [0, 1])
    assert threads.map(work, [2, 3]) == [2, 3], "its threads are still there"


PROCESS = """
import sys
from rljob.cli.app import app
from rljob.weights.server import WeightServer

def answer(self, *_):
    raise KeyError("evaluation")

WeightServer._serve = answer
app(sys.argv[1:], prog_name="rljob")
"""


def test_a_process_says_in_its_last_line_which_thread_ended_it(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(dump_manifest(cartpole()))
    command = [sys.executable, "-c", PROCESS, "worker", "learner", "--job", str(job), "--name", "learner"]
    command += ["--run-dir", str(tmp_path), "--replay-sample", f"ipc://{tmp_path}/sample"]
    command += ["--weights", f"ipc://{tmp_path}/weights", "--notice", f"ipc://{tmp_path}/notice"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=dict(os.environ))
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert lines[-1] == "rljob: thread weight-server has ended: KeyError: 'evaluation'  (--debug shows where)"
    assert any("in answer" in line for line in lines), "the log has the thread's own traceback"
