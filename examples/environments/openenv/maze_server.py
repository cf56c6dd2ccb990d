"""A maze as an OpenEnv server, with nothing but Python's standard library: it needs none of what trains in it.

    python3 -I -S maze_server.py --port 8765

Speaks what OpenEnv's own servers speak, JSON over a WebSocket at ``/ws``, where every connection has a game of its own:

    {"type": "reset", "data": {"seed": 7}}
    {"type": "step", "data": {"direction": 2}}
    {"type": "state"}
    {"type": "close"}

The first two are answered with ``{"type": "observation", "data": {"observation": {...}, "reward": -0.1, "done": false}}``, the
third with ``{"type": "state", "data": {"episode_id": "1", "step_count": 1}}``, and what went wrong with
``{"type": "error", "data": {"message": ..., "code": ...}}``.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import random
import socketserver
import struct
import sys
import threading
from typing import Any

MAZE = ("..#...", ".#..#.", "...#..", ".#...#", ".##.#.", "......")
EXIT = (5, 5)
DIRECTIONS = ((-1, 0), (0, 1), (1, 0), (0, -1))
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of the WebSocket protocol, RFC 6455


def neighbour(place: tuple[int, int], direction: int) -> tuple[int, int] | None:
    """The place beyond, or None where there is a wall."""
    row, column = place[0] + DIRECTIONS[direction][0], place[1] + DIRECTIONS[direction][1]
    inside = 0 <= row < len(MAZE) and 0 <= column < len(MAZE[0])
    return (row, column) if inside and MAZE[row][column] == "." else None


def distances() -> dict[tuple[int, int], int]:
    """How many steps it is from each place to the exit."""
    found, edge = {EXIT: 0}, [EXIT]
    for place in edge:
        for direction in range(4):
            beyond = neighbour(place, direction)
            if beyond is not None and beyond not in found:
                found[beyond] = found[place] + 1
                edge.append(beyond)
    return found


DISTANCES = distances()


class Maze:
    """Begin anywhere, find the exit. Rewards add up to -1 on the shortest way."""

    def __init__(self) -> None:
        self.random = random.Random()
        self.place, self.shortest, self.steps, self.episodes = EXIT, 1, 0, 0

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        if data.get("seed") is not None:
            self.random.seed(data["seed"])
        self.place = self.random.choice(sorted(DISTANCES.keys() - {EXIT}))
        self.shortest, self.steps, self.episodes = DISTANCES[self.place], 0, self.episodes + 1
        return self.seen(None)

    def step(self, data: dict[str, Any]) -> dict[str, Any]:
        self.place = neighbour(self.place, data["direction"]) or self.place
        self.steps += 1
        return self.seen(-1.0 / self.shortest)

    def state(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"episode_id": str(self.episodes), "step_count": self.steps}

    def seen(self, reward: float | None) -> dict[str, Any]:
        free = [int(neighbour(self.place, direction) is not None) for direction in range(4)]
        return {
            "observation": {"place": [number / 5 for number in self.place], "free": free},
            "reward": reward,
            "done": self.place == EXIT,
        }


class Connection(socketserver.StreamRequestHandler):
    """One WebSocket, one maze."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        self.rfile.readline()
        headers = {}
        while line := self.rfile.readline().strip():
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        if b"sec-websocket-key" not in headers:
            self.wfile.write(b"HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\n\r\n")
            return
        accept = base64.b64encode(hashlib.sha1(headers[b"sec-websocket-key"] + MAGIC).digest())
        self.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        maze = Maze()
        while (text := self.received()) is not None:
            message = json.loads(text)
            if message["type"] == "close":
                return
            self.send(answer(maze, message))

    def received(self) -> bytes | None:
        """The next text, which this server wants in one frame; None once the client has left."""
        head = self.rfile.read(2)
        if len(head) < 2 or head[0] & 15 == 8:
            return None
        length = head[1] & 127
        if length == 126:
            (length,) = struct.unpack(">H", self.rfile.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.rfile.read(8))
        mask = self.rfile.read(4)
        return bytes(byte ^ mask[place % 4] for place, byte in enumerate(self.rfile.read(length)))

    def send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message).encode()
        head = bytes((0x81, len(text))) if len(text) < 126 else struct.pack(">BBH", 0x81, 126, len(text))
        self.wfile.write(head + text)


def answer(maze: Maze, message: dict[str, Any]) -> dict[str, Any]:
    verb = message["type"]
    if verb not in ("reset", "step", "state"):
        return {"type": "error", "data": {"message": f"Unknown message type: {verb}", "code": "UNKNOWN_TYPE"}}
    try:
        data = getattr(maze, verb)(message.get("data", {}))
    except Exception as error:  # noqa: BLE001 (whatever it was, the client is told)
        return {"type": "error", "data": {"message": repr(error), "code": "EXECUTION_ERROR"}}
    return {"type": "state" if verb == "state" else "observation", "data": data}


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def end_with_stdin() -> None:
    """The process that started this server holds the other end of its standard input, and lets go of it however it ends."""
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--while-stdin-is-open", action="store_true", help="end with the process that started this one")
    arguments = parser.parse_args()
    if arguments.while_stdin_is_open:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    with Server(("127.0.0.1", arguments.port), Connection) as server:
        print(f"listening on ws://127.0.0.1:{server.server_address[1]}/ws", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
