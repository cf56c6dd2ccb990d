"""The roles of a job over tcp with CURVE keys, as on several machines: they train together, and no stranger takes part."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rljob.api import RLJob, dump_manifest
from rljob.api.exit_codes import EXIT_CONFIGURATION
from rljob.cli.app import app
from rljob.roles.actor import run_actor
from rljob.roles.evaluator import run_evaluator
from rljob.roles.learner import run_learner
from rljob.roles.replay import run_replay
from rljob.wire import Client, ClientSecurity, Message, Subscriber, generate_keys, load_keys
from rljob.wire.security import ROLES, write_keys, write_role_keys
from typer.testing import CliRunner

from tests.support import role_threads
from tests.support.forked_roles import ForkedRole
from tests.support.ports import free_ports
from tests.support.role_threads import ENDPOINTS, RoleThreads

ADDRESSES = {
    "actor": ("--replay-ingest", "--weights", "--notice"),
    "replay": ("--replay-ingest", "--replay-sample"),
    "learner": ("--replay-sample", "--weights", "--notice"),
    "evaluator": ("--weights", "--notice"),
    "inference": ("--inference", "--weights", "--notice"),
}


def cartpole(inference: str = "Local") -> RLJob:
    return role_threads.cartpole(
        # Short games, since every call of torch waits for the other roles' threads of this process; and a trigger that every
        # policy reaches, since the preset's waits until something was learned.
        environment={"kwargs": {"max_episode_steps": 20}},
        actors={"inference": inference},
        evaluator={"episodes": 2, "intervalSeconds": 1, "triggerReturn": 1},
    )


class Run(RoleThreads):
    """Roles as threads, each with a keys file that holds no other role's secret."""

    def __init__(self, run_dir: Path, inference: str = "Local") -> None:
        ports = zip(ENDPOINTS, free_ports(5), strict=True)
        super().__init__(cartpole(inference), run_dir, {kind: f"tcp://127.0.0.1:{port}" for kind, port in ports})
        self.keys = run_dir / "keys.json"
        write_keys(self.keys)
        for role in ROLES:
            write_role_keys(self.keys, run_dir / f"{role}.json", role)

    def updates(self) -> int:
        points = self.records()
        return int(points[-1]["updates"]) if points else 0

    def replay_status(self) -> dict[str, Any]:
        """The service's own account, asked as the learner may ask it."""
        security = load_keys(self.keys, "learner").client("replay")
        with Client(self.endpoints["sample"], security) as client:
            self.until(lambda _: client.send(Message("stats", {}, {})), "asking replay", 10)
            answer = client.receive(60)
        document: dict[str, Any] = json.loads(answer.columns["json"].tobytes())
        return document


@contextmanager
def running(run_dir: Path, inference: str = "Local") -> Iterator[Run]:
    run = Run(run_dir, inference)
    run.start(run_replay, "replay-0", keys=run_dir / "replay.json")
    run.start(run_learner, "learner", keys=run_dir / "learner.json")
    run.start(run_actor, "actor-0", keys=run_dir / "actor.json")
    with closing(run):
        yield run


def test_roles_with_keys_train_and_find_each_other_again_and_a_peer_without_gets_nothing(tmp_path: Path) -> None:
    asking = {
        "ingest": Message("hello", {"actor": "actor-9", "inc": "x", "envs": 1}, {}),
        "sample": Message("stats", {}, {}),
        "weights": Message("fetch", {"have": 0, "evaluation": False}, {}),
        "inference": Message(
            "infer",
            {"actor": "actor-9", "inc": "x", "group": 0, "req": 0},
            {"vector": np.zeros((4, 1, 4), np.float32), "state": np.zeros((4, 2, 0), np.float32)},
        ),
    }
    with running(tmp_path, inference="Central") as run, ExitStack() as closing:
        write_keys(tmp_path / "other-job.json")
        servers = {kind: "replay" if kind in ("ingest", "sample") else "learner" for kind in ENDPOINTS}
        own = load_keys(run.keys, "actor")
        strangers: list[tuple[Message, Client]] = []
        listeners: list[Subscriber] = []
        for kind, endpoint in run.endpoints.items():
            for security in (
                None,
                ClientSecurity(generate_keys(), own.public[servers[kind]]),  # knows the server, is not on its list
                ClientSecurity(own.keys, generate_keys().public),  # is on the list, takes another for the server
            ):
                if kind == "notice":
                    listeners.append(closing.enter_context(Subscriber(endpoint, security)))
                else:
                    strangers.append((asking[kind], closing.enter_context(Client(endpoint, security))))
        # A whole actor of another job that found its way to these addresses.
        run.start(run_actor, "actor-9", keys=tmp_path / "other-job.json")

        def trained_beside_strangers() -> bool:
            for question, client in strangers:
                client.send(question)
                assert client.receive() is None
            assert all(listener.receive() is None for listener in listeners)
            return run.updates() > 50

        run.until(lambda _: trained_beside_strangers(), "updates beside strangers")
        more = run.updates() + 50
        run.until(lambda _: trained_beside_strangers() and run.updates() > more, "more updates beside strangers")
        status = run.replay_status()
        assert [actor["name"] for actor in status["actors"]] == ["actor-0"]
        assert status["rejected_total"] == {}
        assert status["refused_handshakes_total"] > 0
        run.stop("actor-9")
        run.start(run_evaluator, "evaluator", keys=tmp_path / "evaluator.json")
        run.until(lambda _: run.records("evaluation"), "an evaluation")
        run.stop("replay-0")
        before = run.updates()
        run.start(run_replay, "replay-0", keys=tmp_path / "replay.json")
        run.until(lambda _: run.updates() > before + 50, "updates after a restart of replay")
        assert run.records()[-1]["replay/items"] >= 500
        assert not (tmp_path / "roles" / "actor-9.final.json").exists(), "it never joined"


def arguments(role: str, run_dir: Path, address: str) -> list[str]:
    job = run_dir / "job.yaml"
    job.write_text(dump_manifest(cartpole()))
    options = [word for option in ADDRESSES[role] for word in (option, address)]
    return ["worker", role, "--job", str(job), "--run-dir", str(run_dir), "--name", f"{role}-0", *options]


@pytest.mark.parametrize("role", ROLES)
def test_beyond_this_machine_a_role_without_keys_does_not_start(role: str, tmp_path: Path) -> None:
    address = "tcp://0.0.0.0:*" if role == "replay" else "tcp://10.0.0.7:5555"
    result = CliRunner().invoke(app, [*arguments(role, tmp_path, address), "--redis", "none"])
    assert result.exit_code == EXIT_CONFIGURATION
    last = result.stderr.splitlines()[-1]
    assert f"rljob: {address} can be reached from other machines and has no CURVE keys" in last
    assert "--keys FILE" in last
    assert "127.0.0.1" in last


def test_a_process_that_is_refused_ends(tmp_path: Path) -> None:
    """One of its sockets was open already: that must not hold the process up."""
    (tmp_path / "job.yaml").write_text(dump_manifest(cartpole()))
    addresses = dict.fromkeys(("replay_ingest", "weights"), "tcp://127.0.0.1:5555") | {"notice": "tcp://10.0.0.7:5555"}
    log = tmp_path / "log"
    actor = ForkedRole("actor", log, job=tmp_path / "job.yaml", run_dir=tmp_path, name="actor-0", **addresses)
    assert actor.wait() == EXIT_CONFIGURATION
    assert log.read_text().splitlines()[-1].startswith("rljob: tcp://10.0.0.7:5555 can be reached from other machines")
