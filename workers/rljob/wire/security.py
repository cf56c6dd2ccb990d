"""CURVE: who a socket is, whom it lets in, and where it must be used; and the keys of a job in one JSON file, written once when
the job starts and readable by its owner only.

`{"format": 1, "roles": {"actor": {"public": Z85, "secret": Z85}, ...}}`. Each role has its own pair; a server lets in
the public keys of the roles in its file. A file for one role alone (`write_role_keys`) leaves out the others' secrets.
"""

import os
import timeit
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal, Self

import zmq
from pydantic import BaseModel, ValidationError
from zmq.utils import z85

_SLOW_SECONDS: Final = 2.5e-4  # libsodium needs 1-3e-5 on a current core
_KEY_CHARACTERS: Final = 40


class SecurityProblem(ValueError):
    """A socket that would be less safe than the job asked for."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair in Z85 (40 ASCII characters each); the secret does not show in `repr`."""

    public: bytes
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_key(self.public)
        check_key(self.secret)
        if zmq.curve_public(self.secret) != self.public:
            raise SecurityProblem("the public key does not belong to the secret key")


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """The identity of a bound socket and the public keys of the clients it lets in; an empty set lets none in."""

    keys: KeyPair
    allowed_clients: frozenset[bytes]

    def __post_init__(self) -> None:
        for key in self.allowed_clients:
            check_key(key)


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The identity of a connected socket and the public key of the one server it talks to."""

    keys: KeyPair
    server_key: bytes

    def __post_init__(self) -> None:
        check_key(self.server_key)


def check_key(key: bytes) -> None:
    """Raises `SecurityProblem` unless `key` is the Z85 text of 32 bytes."""
    if type(key) is not bytes or len(key) != _KEY_CHARACTERS:
        raise SecurityProblem(f"a CURVE key is {_KEY_CHARACTERS} bytes of Z85 text")
    try:
        decoded = z85.decode(key)
    except (KeyError, ValueError, OverflowError) as error:
        raise SecurityProblem("a CURVE key has a character that is not Z85") from error
    if len(decoded) != 32:
        raise SecurityProblem("a CURVE key is the Z85 text of 32 bytes")


def generate_keys() -> KeyPair:
    """A new random key pair; raises `SecurityProblem` where libzmq cannot do CURVE properly."""
    require_curve()
    return KeyPair(*zmq.curve_keypair())


@cache
def require_curve() -> None:
    """Raises `SecurityProblem` unless libzmq does CURVE, and does it at the speed of libsodium.

    libzmq's fallback is about ten times slower, which turns encryption from a rounding error into the bottleneck. It
    does not name its backend, so one scalar multiplication is timed (best of eight, for a loaded machine).
    """
    if not zmq.has("curve"):
        raise SecurityProblem("this libzmq has no CURVE; install the pyzmq wheel, which has it with libsodium")
    _, secret = zmq.curve_keypair()
    best = min(timeit.repeat(lambda: zmq.curve_public(secret), repeat=8, number=1))
    if best > _SLOW_SECONDS:
        raise SecurityProblem(
            f"CURVE takes {best * 1e6:.0f} us a key, so this libzmq is not built with libsodium and encryption would "
            "be the bottleneck; install the pyzmq wheel"
        )


def is_loopback(endpoint: str) -> bool:
    """Whether nothing outside this machine can reach the endpoint: inproc, ipc, or tcp on a loopback address.

    `tcp://*` and names that are not `localhost` count as reachable: what a name resolves to may change.
    """
    scheme, _, address = endpoint.partition("://")
    if scheme in ("inproc", "ipc"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _Plain:
    permitted = False


def permit_plain() -> None:
    """From now on this process may talk to other machines without keys: its job says that its network can be trusted."""
    _Plain.permitted = True


def require_security(endpoint: str, security: object) -> None:
    """Raises `SecurityProblem` for an endpoint that leaves the machine without CURVE, unless that is permitted."""
    if security is None and not _Plain.permitted and not is_loopback(endpoint):
        raise SecurityProblem(
            f"{endpoint} can be reached from other machines and has no CURVE keys; pass the role's file (--keys FILE, written "
            "by `rljob keys`), or use 127.0.0.1, ipc:// or inproc://"
        )
    if security is not None:
        require_curve()


ROLES: Final = ("actor", "replay", "learner", "evaluator", "inference")


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


class _Pair(BaseModel, extra="forbid", strict=True):
    public: str
    secret: str | None = None


class _Keys(BaseModel, strict=True):
    format: Literal[1] = 1
    roles: dict[str, _Pair]

    @classmethod
    def of(cls, text: str, name: str) -> Self:
        """Raises SecurityProblem where ``text`` of ``name`` is no file of keys; no part of it is shown."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            found = error.errors(include_input=False)[0]
            place = "".join(f"{part}: " for part in found["loc"])
            raise SecurityProblem(
                f"{name} is no file of keys, as `rljob keys` writes it: {place}{found['msg']}"
            ) from None

    def text(self) -> str:
        return self.model_dump_json(exclude_none=True, indent=1) + "\n"


def new_keys() -> str:
    """The text of a file with a new pair for every role."""
    pairs = {role: generate_keys() for role in ROLES}
    return _Keys(
        roles={role: _Pair(public=p.public.decode(), secret=p.secret.decode()) for role, p in pairs.items()}
    ).text()


def keys_of_role(text: str, role: str, name: str = "the keys") -> str:
    """The text of a file for ``role`` alone, from that of a whole one. Raises SecurityProblem where it is none."""
    keys = _Keys.of(text, name)
    if role not in keys.roles:
        raise SecurityProblem(f"{name} has no keys for {role!r}; it has {sorted(keys.roles)}")
    others = {other: _Pair(public=pair.public) for other, pair in keys.roles.items() if other != role}
    return _Keys(roles=keys.roles | others).text()


def write_keys(path: Path) -> None:
    """Generates a pair for every role and writes them, mode 0600; raises `FileExistsError` rather than replace keys."""
    _write(path, new_keys())


def write_role_keys(source: Path, path: Path, role: str) -> None:
    """Copies `source` to `path` with the secret of `role` only: what a machine that runs this role needs to have."""
    _write(path, keys_of_role(_read(source), role, str(source)))


def load_keys(path: Path, role: str) -> RoleKeys:
    """The keys of `role`; raises `SecurityProblem` saying what is wrong with the file, without showing any secret."""
    roles = _Keys.of(_read(path), str(path)).roles
    if role not in roles or (secret := roles[role].secret) is None:
        holders = sorted(name for name, pair in roles.items() if pair.secret is not None)
        raise SecurityProblem(f"{path} has no secret key for {role!r}; it has those of {holders}")
    try:
        public = {name: pair.public.encode("ascii") for name, pair in roles.items()}
        for key in public.values():
            check_key(key)
        return RoleKeys(role, KeyPair(public[role], secret.encode("ascii")), public)
    except (SecurityProblem, UnicodeEncodeError) as error:
        raise SecurityProblem(f"{path}: {error}") from None


def _write(path: Path, text: str) -> None:
    # Created with its final mode, so that there is no moment in which others could open it.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        raise SecurityProblem(f"{path} cannot be read: {type(error).__name__}") from None
