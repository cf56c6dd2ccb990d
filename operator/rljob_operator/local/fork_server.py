"""A process that has loaded everything a role needs, and forks one whenever it is asked to.

Loading Python, torch and the emulators takes two to three seconds of a core, which a role that was killed would have to
find on cores that are busy training. A fork of a process that has loaded them costs some milliseconds, and shares their
memory. Forking is safe here because this process never does anything else: it has one thread, no socket but the one to
its controller, has computed nothing with torch and never touches a GPU.

A role whose libraries read variables of its own while they are loaded is a fork, too, which loads everything anew.

``python -m rljob_operator.local.fork_server FD``: FD is the socket to the controller (`rljob_operator.local.launch`), a
sequence of JSON messages, each answered by one. Where the controller ends, however it does, the roles are asked to leave, as by
Ctrl-C, and killed where they stay.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from setproctitle import setproctitle

from rljob_operator.local.priority import set_niceness

LARGEST_BYTES: Final = 1 << 17
"""The largest message: a command line and an environment. The kernel has this bound for each of their strings."""

LEAVE_SECONDS: Final = 120.0
"""How long roles may take to leave once the controller is gone: a replay saves gigabytes."""

_LOADED: Final = (
    "ale_py.vector_env",
    "cv2",
    "gymnasium.wrappers",
    "rljob.roles.actor",
    "rljob.roles.command",
    "rljob.roles.evaluator",
    "rljob.roles.inference",
    "rljob.roles.learner",
    "rljob.roles.replay",
)


def main(words: Sequence[str]) -> None:
    """Serve the controller; in a fork this returns, as the role that it is to be."""
    setproctitle("rljob fork server")
    controller = socket.socket(fileno=int(words[0]))
    for module in _LOADED:
        with contextlib.suppress(ImportError):  # the role that needs it says so better
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is loaded stays: the collector of no fork has to go through it, which would copy its memory, too
    controller.send(json.dumps({"ready": os.getpid()}).encode())
    roles: dict[int, str] = {}
    role = None
    with contextlib.suppress(ConnectionError):  # the controller is gone in the middle of an exchange
        role = _serve(controller, roles)
    if role is None:
        _end(roles)
    else:
        from rljob.roles.command import app

        app(role, prog_name="rljob worker")


def _serve(controller: socket.socket, roles: dict[int, str]) -> list[str] | None:
    """Answer the controller until it is gone (None); in a fork, the command line of its role. ``roles``: those that were forked
    and not waited for, by process id."""
    while True:
        data, ancillary, _, _ = controller.recvmsg(LARGEST_BYTES, socket.CMSG_SPACE(array.array("i").itemsize))
        if not data:
            return None
        asked = json.loads(data)
        if "wait" in asked:
            roles.pop(int(asked["wait"]), None)
            answer = _exit_code(int(asked["wait"]))
        else:
            log = array.array("i", ancillary[0][2])[0]
            try:
                pid = os.fork()
            except OSError as error:
                answer = {"error": error.strerror}
            else:
                if pid == 0:
                    controller.close()
                    _become(asked, log)
                    if asked["variables"]:
                        os.environ.update(asked["variables"])
                        os.execv(sys.executable, [sys.executable, "-m", "rljob.roles", *asked["words"]])
                    return [str(word) for word in asked["words"]]
                roles[pid] = asked["words"][0]
                answer = {"pid": pid}
            os.close(log)
        controller.send(json.dumps(answer).encode())


def _end(roles: dict[int, str]) -> None:
    """Ask ``roles``, by process id, to leave; end what they leave behind, and those that stay."""
    for pid in roles:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + LEAVE_SECONDS
    while roles:
        for pid, role in list(roles.items()):
            late = time.monotonic() >= deadline
            if late or os.waitpid(pid, os.WNOHANG)[0]:
                del roles[pid]
                if late or role != "replay":  # its Redis saves, and ends by itself
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
        time.sleep(0.05)


def _become(asked: dict[str, Any], log: int) -> None:
    """Make this fork what a process started with ``asked`` would be: session, priority, output, environment, random
    numbers."""
    import numpy as np

    os.setsid()
    set_niceness(os.getpid(), asked["niceness"])
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["rljob", *asked["words"]]
    np.random.seed()


def _exit_code(pid: int) -> dict[str, Any]:
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return {"error": "no such child"}
    return {"exit_code": os.waitstatus_to_exitcode(status)}


if __name__ == "__main__":
    main(sys.argv[1:])
