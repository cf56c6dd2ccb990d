"""Keys: the file, its mode, what a role gets of it, and where keys are required."""

import json
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest
from rljob.wire.security import (
    ROLES,
    ClientSecurity,
    KeyPair,
    SecurityProblem,
    generate_keys,
    is_loopback,
    keys_of_role,
    load_keys,
    new_keys,
    require_curve,
    require_security,
    write_keys,
    write_role_keys,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_keys(tmp_path / "keys.json")
    return tmp_path / "keys.json"


def test_every_role_gets_its_own_pair_and_the_public_keys_of_all(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = {role: load_keys(path, role) for role in ROLES}
    assert len({keys.keys.secret for keys in loaded.values()}) == len(ROLES)
    server, client = loaded["replay"].server(), loaded["actor"].client("replay")
    assert client.server_key == server.keys.public
    assert client.keys.public in server.allowed_clients
    with pytest.raises(FileExistsError):
        write_keys(path)


def test_a_role_file_has_one_secret(path: Path, tmp_path: Path) -> None:
    everyone = json.loads(path.read_text())["roles"]
    for role in ROLES:
        own = tmp_path / role
        write_role_keys(path, own, role)
        assert (own.read_text(), stat.S_IMODE(own.stat().st_mode)) == (keys_of_role(path.read_text(), role), 0o600)
        secrets = [pair["secret"] for pair in everyone.values() if pair["secret"] in own.read_text()]
        assert (secrets, own.read_text().count("secret")) == ([everyone[role]["secret"]], 1)
        loaded = load_keys(own, role)
        assert loaded == load_keys(path, role)
        texts = loaded.keys.secret.decode(), {name: key.decode() for name, key in loaded.public.items()}
        assert texts == (everyone[role]["secret"], {name: pair["public"] for name, pair in everyone.items()})
        other = next(name for name in ROLES if name != role)
        with pytest.raises(SecurityProblem, match=f"no secret key for '{other}'.*'{role}'"):
            load_keys(own, other)


def test_no_two_jobs_have_the_same_keys() -> None:
    first, second = (json.loads(new_keys())["roles"] for _ in range(2))
    assert len({pair["secret"] for roles in (first, second) for pair in roles.values()}) == 2 * len(ROLES)


def test_a_role_without_keys_is_refused_without_showing_any(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SecurityProblem, match="no keys for 'redis'") as caught:
        keys_of_role(path.read_text(), "redis")
    assert not any(pair["secret"] in str(caught.value) for pair in json.loads(path.read_text())["roles"].values())
    with pytest.raises(SecurityProblem, match="no keys for 'redis'"):
        write_role_keys(path, tmp_path / "x.json", "redis")


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "[]",
        '{"format": 2, "roles": {}}',
        '{"format": 1, "roles": []}',
        '{"format": 1, "roles": {}}',
        '{"format": 1, "roles": {"actor": 1}}',
        '{"format": 1, "roles": {"actor": {"public": 1, "secret": "x"}}}',
        '{"format": 1, "roles": {"actor": {"public": "short", "secret": "x"}}}',
        '{"format": 1, "roles": {"actor": {"public": "\\u00e9", "secret": "x"}}}',
        json.dumps({"format": 1, "roles": {"actor": {"public": "0" * 40, "secret": "~" * 40}}}),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str | None) -> None:
    """None: it is missing."""
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SecurityProblem, match=r"keys\.json"):
        load_keys(path, "actor")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2, "roles": {}}', '{"format": 1, "roles": {"actor": 5}}'])
def test_a_text_that_holds_no_keys_is_refused(text: str) -> None:
    with pytest.raises(SecurityProblem):
        keys_of_role(text, "actor")


def test_keys_are_checked_and_secrets_do_not_show() -> None:
    keys, other = generate_keys(), generate_keys()
    assert keys.secret.decode() not in repr(ClientSecurity(keys, other.public))
    with pytest.raises(SecurityProblem, match="does not belong"):
        KeyPair(keys.public, other.secret)
    with pytest.raises(SecurityProblem, match="40"):
        ClientSecurity(keys, b"short")


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("inproc://x", True),
        ("ipc:///tmp/x", True),
        ("tcp://127.0.0.1:5", True),
        ("tcp://127.9.9.9:*", True),
        ("tcp://[::1]:5", True),
        ("tcp://localhost:5", True),
        ("tcp://*:5", False),
        ("tcp://0.0.0.0:5", False),
        ("tcp://10.0.0.1:5", False),
        ("tcp://localhost.example.org:5", False),
        ("tcp://replay-0:5", False),
        ("tcp://127.0.0.1;10.0.0.1:5", False),
        ("tcp://eth0:5", False),
    ],
)
def test_keys_are_required_beyond_loopback(endpoint: str, local: bool) -> None:
    assert is_loopback(endpoint) == local
    with nullcontext() if local else pytest.raises(SecurityProblem, match="no CURVE keys"):
        require_security(endpoint, None)


def test_this_libzmq_has_libsodium() -> None:
    require_curve()
