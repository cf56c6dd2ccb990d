"""Shards whose log is in a Redis that others run, with a password, beside other jobs, not for ever; and those without a log."""

import json
import logging
import ssl
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from rljob.replay import redis_client, remove_log
from rljob.replay.config import ReplayConfig
from rljob.replay.redis_client import Login
from rljob.replay.table import Capacity
from rljob.roles.options import RoleOptions
from rljob.roles.replay import run_replay

from tests.support import role_threads
from tests.support.ports import free_ports
from tests.support.replay_peers import Actor, config, sent, serving
from tests.support.shared_redis import PASSWORD, SharedRedis, shared_redis
from tests.support.tls_proxy import tls_proxy
from tests.support.waiting import eventually, running

KEEP_SECONDS = 1000
LOGIN = Login(password=PASSWORD)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedRedis]:
    with shared_redis(tmp_path / "shared") as server:
        yield server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rljob.replay.service._REDIS_PATIENCE_SECONDS", 0.5)


def of(shared: SharedRedis, keys: str = "default/pong/uid-1/replay-0", **changes: Any) -> ReplayConfig:
    fields = {"run": keys, "redis": shared.url, "redis_login": LOGIN, "redis_keep_seconds": KEEP_SECONDS}
    return config(**{**fields, "capacity": Capacity(3000), **changes})


def reason(service: Any, state: str) -> str:
    """What is said of the log, once it is in that state."""
    eventually(lambda: service.status.redis.state == state, lambda: service.status.redis, 40.0)
    return str(service.status.redis.reason)


def kept(settings: ReplayConfig, chunks: int = 20) -> None:
    """A life of a shard in which so many chunks are sent."""
    with serving(settings) as service:
        Actor(service.ingest_endpoint).send_all(chunks)
        reason(service, "Durable")


@pytest.mark.parametrize(
    "login", [Login(), Login(password="guessed"), Login("nobody", PASSWORD)], ids=["none", "wrong", "user"]
)
def test_a_refused_login_is_said_and_training_goes_on(
    shared: SharedRedis, login: Login, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(of(shared, redis_login=login)) as service:
        assert "Redis refuses this user" in reason(service, "Down")
        sent(service, 3)
        assert (service.table.items, service.status.durable) == (30, False)
        said = f"{service.status} {service.config} {caplog.text}"
    assert PASSWORD not in said
    assert "guessed" not in said


def test_two_jobs_share_a_server_and_neither_has_anything_of_the_other(shared: SharedRedis) -> None:
    one, other = of(shared), of(shared, "default/pong/uid-2/replay-0")
    kept(one, 20)
    with serving(other) as service:
        reason(service, "Durable")
        assert service.table.items == 0, "a job of the same name that was made anew has no experience yet"
        sent(service, 5)
    with serving(one) as service:
        reason(service, "Durable")
        assert service.table.items == 200
    assert all(key.startswith(("run:default/pong/uid-1/", "run:default/pong/uid-2/")) for key in shared.names("run:"))


def test_what_a_job_has_there_is_removed_and_nothing_else(
    shared: SharedRedis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shared.admin.set("somebody's", "own")
    one, other = of(shared), of(shared, "default/pong/uid-2/replay-0")
    kept(one), kept(other)
    before = shared.names("run:default/pong/uid-2/")
    words = [shared.url, one.run, "0"]
    assert remove_log.main(words) == 1
    assert "refuses this user" in capsys.readouterr().err
    monkeypatch.setenv("RLJOB_REDIS_PASSWORD", PASSWORD)
    for _ in range(2):
        assert remove_log.main(words) == 0
        assert shared.names("run:default/pong/uid-1/") == {f"run:{one.run}:shard:0:owner"}
        assert 0 < shared.admin.ttl(f"run:{one.run}:shard:0:owner") <= 3600
    assert (shared.names("run:default/pong/uid-2/"), shared.admin.get("somebody's")) == (before, b"own")
    assert remove_log.main(["redis://127.0.0.1:1", one.run, "0"]) == 1
    assert "can't be reached" in capsys.readouterr().err


def test_a_shard_that_still_drains_writes_nothing_anew(shared: SharedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLJOB_REDIS_PASSWORD", PASSWORD)
    settings = of(shared)
    with serving(settings) as service:
        actor = sent(service, 20)
        assert remove_log.main([shared.url, settings.run, "0"]) == 0
        actor.send_all(5)
        assert "removed" in reason(service, "Lost")
    assert shared.names(f"run:{settings.run}") == {f"run:{settings.run}:shard:0:owner"}


def test_everything_expires_unless_a_shard_renews_it(shared: SharedRedis) -> None:
    settings = of(shared)
    kept(settings)
    for key in shared.names("run:"):
        assert 0 < shared.admin.ttl(key) <= KEEP_SECONDS * 1.25, key
        shared.admin.expire(key, 60)
    with serving(settings) as service:
        sent(service, 1, "actor-1")
        eventually(
            lambda: min(shared.admin.ttl(key) for key in shared.names("run:")) >= KEEP_SECONDS,
            lambda: {key: shared.admin.ttl(key) for key in shared.names("run:")},
            between=lambda: time.sleep(0.1),
        )
        assert service.table.items == 210


def test_a_server_of_a_cluster_is_named(tmp_path: Path) -> None:
    (bus,) = free_ports(1)  # ten thousand above the other by default, which may be beyond the last port
    options = ("--cluster-enabled", "yes", "--cluster-port", str(bus))
    with shared_redis(tmp_path / "shared", *options) as server, serving(of(server)) as service:
        assert "one server of a cluster" in reason(service, "Down")


def test_a_server_that_is_too_old_is_named(shared: SharedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "OLDEST_SERVER", (99, 1))
    with serving(of(shared)) as service:
        assert "is too old; use 99.1 or later" in reason(service, "Down")
        monkeypatch.setattr(redis_client, "OLDEST_SERVER", (6, 2))
        reason(service, "Durable")


def test_a_certificate_is_checked_against_the_given_authority(shared: SharedRedis) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with tls_proxy(context, shared.url) as url:
        with serving(of(shared, redis=url)) as service:
            assert "certificate verify failed" in reason(service, "Down").lower()
        login = Login(password=PASSWORD, authority=authority.cert_pem.bytes().decode())
        kept(of(shared, redis=url, redis_login=login), 5)


def test_a_role_takes_the_address_of_its_job_and_keys_of_its_own(
    shared: SharedRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run folder the keys are the same in the next life; who starts it elsewhere gives them."""
    monkeypatch.setenv("RLJOB_REDIS_PASSWORD", PASSWORD)
    job = role_threads.cartpole(replay={"redis": {"external": {"url": shared.socket_url}}})

    def life(folder: Path, **more: Any) -> set[str]:
        """Which keys are new once it has taken its log: each life writes itself down as its owner."""
        owners = lambda: {shared.admin.get(key) for key in shared.names("run:") if key.endswith(":owner")}  # noqa: E731
        before, owned = shared.names("run:"), owners()
        options = RoleOptions(
            job=job,
            run_dir=folder,
            name="replay-0",
            replay_ingest=(f"ipc://{folder}/i",),
            replay_sample=(f"ipc://{folder}/s",),
            announce=folder / "announced.json",
            **more,
        )
        with running(lambda stop: run_replay(options, stop)):
            eventually(lambda: owners() != owned)
        return shared.names("run:") - before

    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    of_one = life(one)
    assert of_one
    assert all(key.startswith("run:cartpole/") for key in of_one)
    assert not life(one), "all keys were there"
    assert life(other)
    given = "default/cartpole/uid/replay-0"
    of_other = life(other, redis_keys=given)
    assert of_other
    assert all(key.startswith(f"run:{given}:") for key in of_other)
    assert not (one / "redis" / "replay-0").exists(), "no server of its own is started"


def announced(run_dir: Path) -> Path:
    """What the shard writes once it serves."""
    return run_dir / "announced.json"


def shard(run_dir: Path, include: list[str]) -> RoleOptions:
    return RoleOptions(
        job=role_threads.cartpole(checkpoint={"include": include}),
        run_dir=run_dir,
        name="replay-0",
        replay_ingest=(f"ipc://{run_dir}/i",),
        replay_sample=(f"ipc://{run_dir}/s",),
        announce=announced(run_dir),
    )


@pytest.mark.parametrize(("include", "kept"), [(["Learner", "Replay"], True), (["Learner"], False)])
def test_experience_is_kept_only_where_include_names_the_replay(tmp_path: Path, include: list[str], kept: bool) -> None:
    options = shard(tmp_path, include)
    with running(lambda stop: run_replay(options, stop)):
        eventually(announced(tmp_path).exists)
    assert (tmp_path / "redis" / "replay-0").exists() is kept


def test_a_private_server_is_not_told_the_name_that_another_one_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"RLJOB_REDIS_{name}", "of another server")

    def answered() -> bool:
        """Whether the server has let the shard ask for something."""
        url = json.loads(announced(tmp_path).read_text())["metrics_url"]
        with urllib.request.urlopen(f"{url}/status", timeout=5) as answer:
            status = json.load(answer)
        return bool(status["durable"]) and status["redis"]["used_memory_bytes"] is not None

    options = shard(tmp_path, ["Learner", "Replay"])
    with running(lambda stop: run_replay(options, stop)):
        eventually(announced(tmp_path).exists)
        eventually(answered)
