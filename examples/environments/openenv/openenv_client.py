"""The environment of an OpenEnv server as one of Gymnasium's; docs/openenv.md says how it is used.

    rljob run examples/environments/openenv.yaml

Speaks OpenEnv's WebSocket with the standard library; each connection has an environment of its own at the server.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


def make(
    observation: dict[str, Any],
    action: dict[str, Any],
    url: str = "ws://127.0.0.1:0",
    command: Sequence[str] = (),
    max_steps: int = 0,
    seconds: float = 60.0,
) -> gymnasium.Env[Any, Any]:
    """``observation`` and ``action``: the server's fields, each with its space, such as ``{Discrete: 4}``. ``command``: starts a
    server for this environment alone, in the folder of this file, at the port that takes the place of ``{port}``. ``max_steps``
    ends an episode, 0 leaves that to the server. ``seconds``: the longest wait for an answer, and for a server's start."""
    env = OpenEnv(observation, action, url, command, seconds)
    return gymnasium.wrappers.TimeLimit(env, max_steps) if max_steps else env


def space(described: dict[str, Any]) -> gymnasium.Space[Any]:
    """Gymnasium's space of that name with those arguments, or with that one."""
    ((name, given),) = described.items()
    kind: Any = getattr(gymnasium.spaces, name)
    return kind(**given) if isinstance(given, dict) else kind(given)  # type: ignore[no-any-return]


class OpenEnv(gymnasium.Env[Any, Any]):
    """The three verbs. An action space of one field is that field's; infos are empty, since OpenEnv sends none."""

    def __init__(
        self, observation: dict[str, Any], action: dict[str, Any], url: str, command: Sequence[str], seconds: float
    ) -> None:
        self._seen_as = {name: space(described) for name, described in observation.items()}
        self._taken_as = {name: space(described) for name, described in action.items()}
        self.observation_space = gymnasium.spaces.Dict(self._seen_as)
        self.action_space = gymnasium.spaces.Dict(self._taken_as)
        if len(action) == 1:
            (self.action_space,) = self._taken_as.values()
        self._host, _, port = url.rpartition("//")[2].rstrip("/").partition(":")
        self._port = int(port or 80)
        self._command, self._seconds = list(command), seconds
        self._server: subprocess.Popen[bytes] | None = None
        self._socket: JSONSocket | None = None
        try:
            self.state()  # where the server is not there, or has no place for one more, it is told now
        except (OSError, RuntimeError):
            self.close()
            raise

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        data = {} if seed is None else {"seed": seed}
        if self._socket is not None:
            try:
                return self._observation(self._ask("reset", data)), {}
            except ConnectionError:
                pass  # a server may end a connection on which nothing was asked for long; another is made
        return self._observation(self._ask("reset", data)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._socket is None:
            raise ConnectionError(f"{self._where} was lost in this episode; reset() connects again")
        taken = action if len(self._taken_as) > 1 else dict.fromkeys(self._taken_as, action)
        answer = self._ask("step", {name: np.asarray(value).tolist() for name, value in taken.items()})
        return self._observation(answer), float(answer["reward"] or 0.0), bool(answer["done"]), False, {}

    def state(self) -> dict[str, Any]:
        """What the server says of the episode."""
        return self._ask("state")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._server is not None:
            self._server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.communicate(timeout=5.0)
            self._server.kill()
            self._server.wait()
            self._server = None

    def _observation(self, answer: dict[str, Any]) -> dict[str, Any]:
        came, seen = answer["observation"], {}
        for name, declared in self._seen_as.items():
            try:
                seen[name] = np.asarray(came[name], declared.dtype).reshape(declared.shape or ())
            except (KeyError, TypeError, ValueError):
                raise ValueError(f"{self._where}: observation {name}: expected {declared}, got {came}") from None
        return seen

    def _ask(self, verb: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            self._socket = self._socket or self._connected()
            answer = self._socket.ask({"type": verb} if data is None else {"type": verb, "data": data})
        except OSError as error:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            raise ConnectionError(f"{self._where}: {verb}: {error}") from error
        said: dict[str, Any] = answer["data"]
        if answer["type"] == "error":
            raise RuntimeError(
                f"{self._where}: {verb}: {said['message']} ({said['code']}) {said.get('errors', '')}".rstrip()
            )
        return said

    @property
    def _where(self) -> str:
        return f"the OpenEnv server at {self._host}:{self._port}"

    def _connected(self) -> JSONSocket:
        if self._command and (self._server is None or self._server.poll() is not None):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._host, self._port = free.getsockname()
            words = [word.replace("{port}", str(self._port)) for word in self._command]
            self._server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=2, cwd=Path(__file__).parent)
        until = time.monotonic() + self._seconds
        while True:
            try:
                return JSONSocket(self._host, self._port, self._seconds)
            except ConnectionRefusedError:
                if self._server is None or time.monotonic() > until:
                    raise
                if (code := self._server.poll()) is not None:
                    raise ConnectionError(f"{self._command} ended with exit code {code}") from None
                time.sleep(0.05)


class JSONSocket:
    """A WebSocket (RFC 6455) at ``/ws`` on which each message has one answer. Raises OSError where it is no more."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self._socket = socket.create_connection((host, port), seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = self._socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}"
        self._socket.sendall(f"GET /ws HTTP/1.1\r\nHost: {host}:{port}\r\n{upgrade}\r\n\r\n".encode())
        status = self._read.readline().decode(errors="replace").strip()
        while self._read.readline().strip():
            pass
        if status.split(" ")[1:2] != ["101"]:
            self._socket.close()
            raise ConnectionError(f"it has no WebSocket at /ws, but answers {status!r}")

    def ask(self, message: dict[str, Any]) -> Any:
        self._send(0x81, json.dumps(message).encode())
        text = b""
        while True:
            first, length = self._exactly(2)
            if length > 125:
                (length,) = struct.unpack(">H" if length == 126 else ">Q", self._exactly(2 if length == 126 else 8))
            data = self._exactly(length)
            if first & 15 == 8:
                raise ConnectionError(
                    f"it ended the connection: {data[2:].decode(errors='replace') or 'no reason given'}"
                )
            if first & 15 == 9:
                self._send(0x8A, data)  # a ping, answered
            elif first & 15 != 10:
                text += data
                if first & 0x80:
                    return json.loads(text)

    def close(self) -> None:
        """Takes leave, so that the server may end the environment, and waits a moment until it has."""
        with contextlib.suppress(OSError, ValueError):
            self._socket.settimeout(2.0)
            self.ask({"type": "close"})
        self._read.close()
        self._socket.close()

    def _send(self, first: int, data: bytes) -> None:
        length = len(data)
        head = bytes((first, 0x80 | length)) if length < 126 else struct.pack(">BBQ", first, 0xFF, length)
        self._socket.sendall(head + bytes(4) + data)  # of a mask of zeros the data are themselves

    def _exactly(self, length: int) -> bytes:
        data = self._read.read(length)
        if len(data) < length:
            raise ConnectionError("it is gone")
        return data
