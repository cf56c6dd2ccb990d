"""What the pods of the table's job have beside their program: a way to end it as if it had ended by itself, an init container and
a sidecar that fail when they are told to. All of it comes by the roles' ``podTemplate``, as a user would add it."""

from typing import Any

NAME = "trouble"
"""The ConfigMap, and the volume of it."""
INIT_FAILS = "init-fails"
"""A key of the ConfigMap; while it is there, init containers fail."""
FOLDER = "/trouble"

IN_PROCESS = """
import os, signal

def act(number, frame):
    words = open("/tmp/trouble").read().split()
    if words[0] == "exit":
        os._exit(int(words[1]))
    hog = []
    while True:
        hog.append(b"x" * (64 << 20))

if os.getppid() == 1:  # the container's program, and none of its children
    signal.signal(signal.SIGUSR1, act)
"""
"""Python imports it as ``sitecustomize`` at the start of each process."""

_RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def config_map(init_fails: bool = False) -> dict[str, Any]:
    """With ``init_fails`` each pod that starts from now on fails before its program does."""
    data = {"sitecustomize.py": IN_PROCESS, **({INIT_FAILS: "no bucket of that name"} if init_fails else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data}


def template(image: str) -> dict[str, Any]:
    """A role's ``podTemplate``."""
    mount = {"name": NAME, "mountPath": FOLDER, "readOnly": True}
    checks = f"if [ -e {FOLDER}/{INIT_FAILS} ]; then cat {FOLDER}/{INIT_FAILS}; exit 3; fi"
    waits = "trap 'exit 0' TERM; while [ ! -e /tmp/stop ]; do sleep 0.5; done; echo stopped; exit 3"
    beside = {"image": image, "securityContext": _RESTRICTED}
    return {
        "spec": {
            "volumes": [{"name": NAME, "configMap": {"name": NAME}}],
            "initContainers": [{"name": "check", "command": ["sh", "-c", checks], "volumeMounts": [mount], **beside}],
            "containers": [
                {"name": "worker", "env": [{"name": "PYTHONPATH", "value": FOLDER}], "volumeMounts": [mount]},
                {"name": "beside", "command": ["sh", "-c", waits], **beside},
            ],
        }
    }
