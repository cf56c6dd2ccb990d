"""The keys of a job in one JSON file, written once when the job starts and readable by its owner only.

`{"format": 1, "roles": {"actor": {"public": Z85, "secret": Z85}, ...}}`. Each role has its own pair; a server lets in
the public keys of the roles in its file. A file for one role alone (`write_role_keys`) leaves out the others' secrets.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rljob.wire.security import ClientSecurity, KeyPair, SecurityProblem, ServerSecurity, check_key, generate_keys

ROLES: Final = ("actor", "replay", "learner", "evaluator", "inference")
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class RoleKeys:
    """One role's own pair and the public keys of all roles of the job."""

    role: str
    keys: KeyPair
    public: dict[str, bytes]

    def server(self) -> ServerSecurity:
        """For a socket that this role binds: every role of the job may come in, no other client."""
        return ServerSecurity(self.keys, frozenset(self.public.values()))

    def client(self, server_role: str) -> ClientSecurity:
        """For a socket that this role connects to one bound by `server_role`."""
        return ClientSecurity(self.keys, self.public[server_role])


def new_keys() -> str:
    """The text of a file with a new pair for every role."""
    pairs = {role: generate_keys() for role in ROLES}
    return _text({role: {"public": p.public.decode(), "secret": p.secret.decode()} for role, p in pairs.items()})


def keys_of_role(text: str, role: str) -> str:
    """The text of a file for ``role`` alone, from that of a whole one. Raises SecurityProblem where it is none."""
    return _text(_for_role(_checked(text, "the keys"), role, "the keys"))


def write_keys(path: Path) -> None:
    """Generates a pair for every role and writes them, mode 0600; raises `FileExistsError` rather than replace keys."""
    _write(path, new_keys())


def write_role_keys(source: Path, path: Path, role: str) -> None:
    """Copies `source` to `path` with the secret of `role` only: what a machine that runs this role needs to have."""
    _write(path, _text(_for_role(_read(source), role, str(source))))


def load_keys(path: Path, role: str) -> RoleKeys:
    """The keys of `role`; raises `SecurityProblem` saying what is wrong with the file, without showing any secret."""
    roles = _read(path)
    own = roles.get(role)
    if own is None or "secret" not in own:
        holders = sorted(name for name, pair in roles.items() if "secret" in pair)
        raise SecurityProblem(f"{path} has no secret key for {role!r}; it has those of {holders}")
    try:
        public = {name: pair["public"].encode("ascii") for name, pair in roles.items()}
        for key in public.values():
            check_key(key)
        return RoleKeys(role, KeyPair(public[role], own["secret"].encode("ascii")), public)
    except (SecurityProblem, UnicodeEncodeError) as error:
        raise SecurityProblem(f"{path}: {error}") from None


def _for_role(roles: dict[str, dict[str, str]], role: str, source: str) -> dict[str, dict[str, str]]:
    if role not in roles:
        raise SecurityProblem(f"{source} has no keys for {role!r}; it has {sorted(roles)}")
    return {name: dict(pair) if name == role else {"public": pair["public"]} for name, pair in roles.items()}


def _text(roles: dict[str, dict[str, str]]) -> str:
    return json.dumps({"format": _FORMAT, "roles": roles}, indent=1) + "\n"


def _write(path: Path, text: str) -> None:
    # Created with its final mode, so that there is no moment in which others could open it.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise SecurityProblem(f"{path} cannot be read as JSON: {type(error).__name__}") from None
    return _checked(text, str(path))


def _checked(text: str, path: str) -> dict[str, dict[str, str]]:
    try:
        content: Any = json.loads(text)
    except ValueError as error:
        raise SecurityProblem(f"{path} cannot be read as JSON: {type(error).__name__}") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT or not isinstance(content.get("roles"), dict):
        raise SecurityProblem(f'{path} is not a keys file: it must be {{"format": {_FORMAT}, "roles": ...}}')
    roles: dict[str, dict[str, str]] = {}
    for name, pair in content["roles"].items():
        if not isinstance(pair, dict) or not {"public"} <= pair.keys() <= {"public", "secret"}:
            raise SecurityProblem(f"{path}: {name!r} must have a public and may have a secret key")
        if not all(isinstance(key, str) for key in pair.values()):
            raise SecurityProblem(f"{path}: the keys of {name!r} must be Z85 text")
        roles[name] = pair
    return roles
