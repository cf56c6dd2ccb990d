"""The keys of a job as text: made at once, and handed out role by role."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rljob.wire.keyfile import ROLES, joined_keys, keys_of_role, load_keys, new_keys
from rljob.wire.security import SecurityProblem


def test_each_role_gets_its_own_secret_and_everybodys_public_key(tmp_path: Path) -> None:
    whole = new_keys()
    everyone = json.loads(whole)["roles"]
    for role in ROLES:
        (tmp_path / role).write_text(keys_of_role(whole, role))
        loaded = load_keys(tmp_path / role, role)
        assert loaded.keys.secret.decode() == everyone[role]["secret"]
        assert {name: key.decode() for name, key in loaded.public.items()} == {
            name: pair["public"] for name, pair in everyone.items()
        }
        others = [pair["secret"] for name, pair in everyone.items() if name != role]
        assert not any(secret in (tmp_path / role).read_text() for secret in others)
        with pytest.raises(SecurityProblem, match="no secret key"):
            load_keys(tmp_path / role, next(name for name in ROLES if name != role))


def test_no_two_jobs_have_the_same_keys() -> None:
    first, second = (json.loads(new_keys())["roles"] for _ in range(2))
    assert len({pair["secret"] for roles in (first, second) for pair in roles.values()}) == 2 * len(ROLES)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2, "roles": {}}', '{"format": 1, "roles": {"actor": 5}}'])
def test_what_is_no_file_of_keys_is_refused(text: str) -> None:
    with pytest.raises(SecurityProblem):
        keys_of_role(text, "actor")


def test_a_role_without_keys_is_refused_without_showing_any() -> None:
    whole = new_keys()
    with pytest.raises(SecurityProblem, match="no keys for 'redis'") as caught:
        keys_of_role(whole, "redis")
    assert not any(pair["secret"] in str(caught.value) for pair in json.loads(whole)["roles"].values())


def test_the_files_of_all_roles_make_the_whole_one_again() -> None:
    whole = new_keys()
    parts = {role: keys_of_role(whole, role) for role in ROLES}
    assert json.loads(joined_keys(parts)) == json.loads(whole)
    with pytest.raises(SecurityProblem, match=r"keys of \['actor', 'replay'\] are missing"):
        joined_keys({role: text for role, text in parts.items() if role not in ("actor", "replay")})
    for wrong in (keys_of_role(new_keys(), "actor"), keys_of_role(whole, "learner")):
        with pytest.raises(SecurityProblem, match="not of one making"):
            joined_keys({**parts, "actor": wrong})
