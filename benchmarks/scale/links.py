"""Network namespaces joined by a switch, each with a link that carries so much and no more (Linux, as root).

`tc`'s token bucket holds both ways: what leaves a namespace, and what the switch sends to it. There is bandwidth, no delay.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PREFIX = "rls-"
_SWITCH = f"{PREFIX}switch"
_NET = "10.213.0"


def address(number: int) -> str:
    """Of the namespace with this number, from 0."""
    return f"{_NET}.{number + 1}"


def inside(number: int, command: Sequence[str]) -> list[str]:
    """The command, to be run in that namespace."""
    return ["ip", "netns", "exec", f"{PREFIX}{number}", *command]


def sent_bytes(device: str = "eth0") -> int:
    """What has left the namespace of this process."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == device:
            return int(figures.split()[8])
    return 0


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


@contextmanager
def links(count: int, mbit: int) -> Iterator[None]:
    """``count`` namespaces, of which each sends and receives ``mbit`` Mbit/s at most."""
    made = [_SWITCH]
    held = ["root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms"]
    switch = ["ip", "netns", "exec", _SWITCH]
    try:
        _run("ip", "netns", "add", _SWITCH)
        _run(*switch, "ip", "link", "add", "sw0", "type", "bridge")
        _run(*switch, "ip", "link", "set", "sw0", "up")
        for number in range(count):
            name, port = f"{PREFIX}{number}", f"port{number}"
            _run("ip", "netns", "add", name)
            made.append(name)
            _run("ip", "link", "add", port, "netns", _SWITCH, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run(*switch, "ip", "link", "set", port, "master", "sw0", "up")
            _run(*switch, "tc", "qdisc", "add", "dev", port, *held)
            _run(*inside(number, ["ip", "link", "set", "lo", "up"]))
            _run(*inside(number, ["ip", "address", "add", f"{address(number)}/24", "dev", "eth0"]))
            _run(*inside(number, ["ip", "link", "set", "eth0", "up"]))
            _run(*inside(number, ["tc", "qdisc", "add", "dev", "eth0", *held]))
        yield
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
