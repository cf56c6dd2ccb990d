"""A process that has loaded everything a role needs, and forks one whenever it is asked to.

Loading Python, torch and the emulators takes two to three seconds of a core, which a role that was killed would have to
find on cores that are busy training. A fork of a process that has loaded them costs some milliseconds, and shares their
memory. Forking is safe here because this process never does anything else: it has one thread, no socket but the one to
its controller, has computed nothing with torch and never touches a GPU.

A role whose libraries read variables of its own while they are loaded is a fork, too, which loads everything again.

It is a `Child` of the controller (`rljob_operator.local.launch`), whose messages it answers each by one. Where the controller
ends, however it does, the roles are asked to leave, as by Ctrl-C, and killed where they stay.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any, Final

from rljob.child import become
from setproctitle import setproctitle

from rljob_operator.local.process import set_niceness

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


def main(controller: Connection[Any, Any]) -> None:
    """Serve the controller; in a fork, be the role that it asked for."""
    setproctitle("rljob fork server")
    for module in _LOADED:
        with contextlib.suppress(ImportError):  # the role that needs it says so better
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is loaded stays: the collector of no fork has to go through it, which would copy its memory, too
    roles: dict[int, str] = {}
    role = None
    with contextlib.suppress(EOFError, ConnectionError):  # the controller is gone, maybe in the middle of an exchange
        controller.send({"ready": os.getpid()})
        role = _serve(controller, roles)
    if role is None:
        _end(roles)
    else:
        from rljob.roles.__main__ import main as be

        be(role)


def _serve(controller: Connection[Any, Any], roles: dict[int, str]) -> list[str]:
    """Answer the controller; in a fork, the command line of its role. ``roles``: those that were forked and not waited for, by
    process id. Raises EOFError or ConnectionError where the controller is gone."""
    while True:
        asked = controller.recv()
        if "wait" in asked:
            roles.pop(asked["wait"], None)
            answer = _exit_code(asked["wait"])
        else:
            log = recv_handle(controller)
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
                        become(f"rljob {asked['words'][0]}", "rljob.roles.__main__", asked["words"])
                    return list(asked["words"])
                roles[pid] = asked["words"][0]
                answer = {"pid": pid}
            os.close(log)
        controller.send(answer)


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
