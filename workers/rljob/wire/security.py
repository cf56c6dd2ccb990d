"""CURVE: who a socket is, whom it lets in, and where it must be used."""

import time
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from typing import Final

import zmq
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
    best = min(_timed_multiplication(secret) for _ in range(8))
    if best > _SLOW_SECONDS:
        raise SecurityProblem(
            f"CURVE takes {best * 1e6:.0f} us a key, so this libzmq is not built with libsodium and encryption would "
            "be the bottleneck; install the pyzmq wheel"
        )


def _timed_multiplication(secret: bytes) -> float:
    started = time.perf_counter()
    zmq.curve_public(secret)
    return time.perf_counter() - started


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
