"""A process that has loaded everything a role needs, and forks one whenever it is asked to.

Loading Python, torch and the emulators takes two to three seconds of a core, which a role that was killed would have to
find on cores that are busy training. A fork of a process that has loaded them costs some milliseconds, and shares their
memory. Forking is safe here because this process never does anything else: it has one thread, no socket but the one to
its controller, has computed nothing with torch and never touches a GPU.

``python -m rljob_operator.local.fork_server FD``: FD is the socket to the controller (`rljob_operator.local.launch`), a
sequence of JSON messages, each answered by one. The end of the controller ends it; its forks go on.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final

from setproctitle import setproctitle

from rljob_operator.local.priority import set_niceness

LARGEST_BYTES: Final = 1 << 17
"""Of a message: a command line and an environment, which have this bound of the kernel's on each of their words."""

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
    "torch._dynamo",  # an optimizer loads it when it is made
)


def main(words: Sequence[str]) -> None:
    """Serve the controller; a fork comes out of here as the role it is to be."""
    setproctitle("rljob fork server")
    controller = socket.socket(fileno=int(words[0]))
    for module in _LOADED:
        with contextlib.suppress(ImportError):  # the role that needs it says so better
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is loaded stays: no fork has to look through it, which would copy its memory, too
    controller.send(json.dumps({"ready": os.getpid()}).encode())
    role = _serve(controller)
    if role is not None:
        from rljob.roles.command import app

        app(role, prog_name="rljob worker")


def _serve(controller: socket.socket) -> list[str] | None:
    """Answer the controller until it is gone (None); in a fork, the command line of its role."""
    while True:
        data, ancillary, _, _ = controller.recvmsg(LARGEST_BYTES, socket.CMSG_SPACE(array.array("i").itemsize))
        if not data:
            return None
        asked = json.loads(data)
        if "wait" in asked:
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
                    return [str(word) for word in asked["words"]]
                answer = {"pid": pid}
            os.close(log)
        controller.send(json.dumps(answer).encode())


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
