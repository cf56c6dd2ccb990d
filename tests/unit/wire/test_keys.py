"""Keys: the file, its mode, what a role gets of it, and where keys are required."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from rljob.wire.keyfile import ROLES, load_keys, write_keys, write_role_keys
from rljob.wire.security import (
    ClientSecurity,
    KeyPair,
    SecurityProblem,
    generate_keys,
    is_loopback,
    require_curve,
    require_security,
)


def test_every_role_gets_its_own_pair_and_the_public_keys_of_all(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_keys(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = {role: load_keys(path, role) for role in ROLES}
    assert len({keys.keys.secret for keys in loaded.values()}) == len(ROLES)
    server, client = loaded["replay"].server(), loaded["actor"].client("replay")
    assert client.server_key == server.keys.public
    assert client.keys.public in server.allowed_clients
    with pytest.raises(FileExistsError):
        write_keys(path)


def test_a_role_file_has_one_secret(tmp_path: Path) -> None:
    write_keys(tmp_path / "all.json")
    write_role_keys(tmp_path / "all.json", tmp_path / "actor.json", "actor")
    text = (tmp_path / "actor.json").read_text()
    assert text.count("secret") == 1
    assert stat.S_IMODE((tmp_path / "actor.json").stat().st_mode) == 0o600
    assert load_keys(tmp_path / "actor.json", "actor") == load_keys(tmp_path / "all.json", "actor")
    with pytest.raises(SecurityProblem, match=r"no secret key for 'replay'.*'actor'"):
        load_keys(tmp_path / "actor.json", "replay")
    with pytest.raises(SecurityProblem, match="no keys for"):
        write_role_keys(tmp_path / "all.json", tmp_path / "x.json", "cook")


@pytest.mark.parametrize(
    "content",
    [
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
def test_a_bad_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(SecurityProblem, match=r"keys\.json"):
        load_keys(path, "actor")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityProblem, match=r"absent\.json"):
        load_keys(tmp_path / "absent.json", "actor")


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
    if local:
        require_security(endpoint, None)
    else:
        with pytest.raises(SecurityProblem, match="no CURVE keys"):
            require_security(endpoint, None)


def test_this_libzmq_has_libsodium() -> None:
    require_curve()
