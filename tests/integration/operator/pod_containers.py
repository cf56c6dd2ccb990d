"""Pods of a job run on this machine: each container's own command, variables and files, with places and addresses moved here."""

import base64
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob_operator.kube.render import names
from rljob_operator.kube.render.children import Secrets, children
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.pod import pod
from rljob_operator.kube.render.settings import Settings

from tests.support.ports import free_ports

START_SECONDS = 120.0
STOP_SECONDS = 60.0
IMAGE_ENTRY_POINT = ("python", "-m", "rljob_operator")
"""What the image begins a container with, but for its init."""
_ADDRESS = re.compile(r"tcp://([^: ]+):(\d+)")


@dataclass
class Running:
    """The processes of one pod; ``sidecar`` is started first and ended last."""

    worker: subprocess.Popen[bytes]
    sidecar: subprocess.Popen[bytes] | None


class PodContainers:
    """Starts and ends members of ``owned``, with all files below ``folder``, whose path has to be short. ``given``: the Secrets
    that the job's user has made, by name."""

    def __init__(
        self,
        owned: Owned,
        secrets: Secrets,
        settings: Settings,
        folder: Path,
        given: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.owned, self._settings, self._folder = owned, settings, folder
        self._given = given or {}
        self._objects = {(e["kind"], e["metadata"]["name"]): e for e in children(owned, secrets, settings)}
        self._ports: dict[tuple[str, int], int] = {}
        self._pods: dict[str, Running] = {}
        self._started = 0

    def start(self, member: str) -> None:
        """A new pod of ``member``, once the one before has gone; returns when it has started, as its probe says."""
        self._started += 1
        document = pod(self.owned, member, f"{self._started:05}", "revision", self._settings)
        spec = document["spec"]
        volumes = {each["name"]: self._volume(document["metadata"]["name"], each) for each in spec["volumes"]}
        sidecar = None
        for container in spec.get("initContainers", ()):
            sidecar = self._run_sidecar(member, container, volumes)
        (container,) = spec["containers"]
        self._pods[member] = Running(self._run(member, container, volumes), sidecar)
        self.until(lambda: self.get(member, container["startupProbe"]["httpGet"]["path"])[0] == 200, member)

    def end(self, member: str) -> int:
        """Delete the pod as a kubelet would; the exit code of its worker."""
        running = self._pods.pop(member)
        code = _end(running.worker)
        if running.sidecar is not None:
            assert _end(running.sidecar) == 0, "the sidecar saves"
        return code

    def close(self) -> None:
        """End whatever runs."""
        for running in self._pods.values():
            for process in filter(None, (running.worker, running.sidecar)):
                process.kill()
                process.wait()

    def last_words(self, member: str) -> dict[str, Any]:
        """What the newest pod of ``member`` has left in its termination log."""
        newest = max(self._folder.glob(f"{self.owned.name}-{member}-*.log"))
        return dict(json.loads(newest.read_text()))

    def get(self, member: str, page: str) -> tuple[int, str]:
        """(HTTP status, body) of a page of its metrics port; 0 where no server answers."""
        return self._ask(member, page)

    def post(self, member: str, page: str, document: dict[str, Any], token: str) -> int:
        """The HTTP status that a request is answered with."""
        return self._ask(member, page, json.dumps(document).encode(), {"Authorization": f"Bearer {token}"})[0]

    def status(self, member: str) -> dict[str, Any]:
        """Its status document; empty where no server answers."""
        code, body = self.get(member, "/status")
        return dict(json.loads(body)) if code == 200 else {}

    def until(self, holds: Any, what: str) -> None:
        """Wait, for as long as every process lives."""
        self._until(holds, what, *(process for each in self._pods.values() for process in (each.worker, each.sidecar)))

    def _until(self, holds: Any, what: str, *processes: subprocess.Popen[bytes] | None) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not holds():
            ended = [process.args for process in processes if process is not None and process.poll() is not None]
            logs = "\n".join(log.read_text()[-1500:] for log in sorted(self._folder.glob("*.out")))
            assert not ended, f"{what}: {ended}\n{logs}"
            assert time.monotonic() < deadline, f"{what}: not within {START_SECONDS:.0f} s\n{logs}"
            time.sleep(0.1)

    def _ask(
        self, member: str, page: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        port = self._port(member, self.owned.job.spec.monitoring.metrics_port)
        request = urllib.request.Request(f"http://127.0.0.1:{port}{page}", body, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def _port(self, member: str, number: int) -> int:
        """Where a port of a member is on this machine."""
        if (member, number) not in self._ports:
            (self._ports[member, number],) = free_ports(1)
        return self._ports[member, number]

    def _volume(self, pod_name: str, volume: dict[str, Any]) -> Path:
        """Its folder: a claim's is the same for every pod, an emptyDir is the pod's own."""
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        folder = self._folder / (claim or f"{pod_name}-{volume['name']}")
        folder.mkdir(exist_ok=True)
        files: dict[str, str] = {}
        if "configMap" in volume:
            files = self._objects["ConfigMap", volume["configMap"]["name"]]["data"]
        if "secret" in volume:
            stored = self._objects["Secret", volume["secret"]["secretName"]]["data"]
            items = volume["secret"]["items"]
            files = {each["path"]: base64.b64decode(stored[each["key"]]).decode() for each in items}
        for name, text in files.items():
            (folder / name).write_text(text)
        return folder

    def _run(self, member: str, container: dict[str, Any], volumes: dict[str, Path]) -> subprocess.Popen[bytes]:
        command = self._moved(
            member, [*container.get("command", IMAGE_ENTRY_POINT), *container.get("args", ())], container, volumes
        )
        values = self._moved(member, [each["value"] for each in container.get("env", ())], container, volumes)
        variables = dict(zip([each["name"] for each in container.get("env", ())], values, strict=True))
        for source in container.get("envFrom", ()):
            variables = {**self._given[source["secretRef"]["name"]], **variables}
        if "RLJOB_METRICS_PORT" in variables:
            variables["RLJOB_METRICS_PORT"] = str(self._port(member, int(variables["RLJOB_METRICS_PORT"])))
        with (self._folder / f"{member}-{container['name']}.out").open("ab") as log:
            return subprocess.Popen(command, env=variables, stdout=log, stderr=log)

    def _run_sidecar(self, member: str, container: dict[str, Any], volumes: dict[str, Path]) -> subprocess.Popen[bytes]:
        """It runs once its own probe says so, as a kubelet waits for it."""
        process = self._run(member, container, volumes)
        probe = self._moved(member, container["startupProbe"]["exec"]["command"], container, volumes)
        self._until(lambda: subprocess.run(probe, check=False).returncode == 0, f"{member}'s sidecar", process)
        return process

    def _moved(self, member: str, words: list[str], container: dict[str, Any], volumes: dict[str, Path]) -> list[str]:
        places = {each["mountPath"]: str(volumes[each["name"]]) for each in container["volumeMounts"]}
        log = self._folder / f"{self.owned.name}-{member}-{self._started:05}.log"
        places = {**places, names.TERMINATION_LOG: str(log), "python": sys.executable}

        def address(found: re.Match[str]) -> str:
            host = found[1]
            peer = member if host == "*" else host.partition(".")[0]
            return f"tcp://127.0.0.1:{self._port(peer, int(found[2]))}"

        moved = []
        for word in words:
            place = max((each for each in places if word == each or word.startswith(f"{each}/")), key=len, default="")
            moved.append(_ADDRESS.sub(address, places[place] + word[len(place) :] if place else word))
        return moved


def _end(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(STOP_SECONDS)
