"""A real API server with its etcd on loopback, for as long as the tests run: no nodes, no controllers, nothing is scheduled; our
client on it, and the objects that tests need.

The programs come from the folder that ``KUBEBUILDER_ASSETS`` names (`setup-envtest` makes one). Keys and certificates are made at
the start and are gone at the end.
"""

import asyncio
import http.client
import inspect
import json
import signal
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import trustme
from kubernetes.aio.client.configuration import Configuration
from rljob.api.generate import __main__ as files
from rljob.replay.embedded_redis import with_parent_death_signal
from rljob_operator.kube.apiserver.access import Access, load_access
from rljob_operator.kube.apiserver.client import Client

from tests.support.paths import ROOT
from tests.support.ports import free_ports
from tests.support.waiting import eventually

CRD_FILE = ROOT / files.CRD_FILE
EXPERIMENT_CRD_FILE = ROOT / files.EXPERIMENT_CRD_FILE
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
START_SECONDS = 90.0
STOP_SECONDS = 15.0
MERGE = "application/merge-patch+json"
NAMESPACE = "default"
C = TypeVar("C", bound=Client)


class ControlPlane:
    """Servers with all their data in ``directory``; everything that asks is an administrator."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs, self._directory = programs, directory
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starter = ThreadPoolExecutor(1, "control-plane")  # a server ends with the thread that started it
        self._make_keys()
        self._tls = ssl.create_default_context(cafile=directory / "ca.crt")
        self._tls.load_cert_chain(directory / "admin.crt", directory / "admin.key")

    @property
    def kubeconfig(self) -> Path:
        """The file that makes a client an administrator."""
        return self._directory / "kubeconfig"

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start both servers and wait until they serve. Raises ``RuntimeError`` with the end of their logs."""
        self._start_etcd()
        self.start_api_server()

    def _start_etcd(self) -> None:
        etcd = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        data = self._directory
        self._spawn(
            "etcd", f"--data-dir={data / 'etcd'}", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )  # fmt: skip

    def start_api_server(self) -> None:
        """Start the API server, on the port and the data that it always has, and wait until it serves."""
        data = self._directory
        self._spawn(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1", f"--secure-port={self._port}",
            "--advertise-address=127.0.0.1", "--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC",
            f"--cert-dir={data}", f"--tls-cert-file={data / 'server.crt'}",
            f"--tls-private-key-file={data / 'server.key'}", f"--client-ca-file={data / 'ca.crt'}",
            f"--service-account-key-file={data / 'server.key'}",
            f"--service-account-signing-key-file={data / 'server.key'}",
            "--service-account-issuer=https://127.0.0.1", "--disable-admission-plugins=ServiceAccount",
        )  # fmt: skip
        self.wait_until("ready", self._serves, START_SECONDS)

    def stop(self) -> None:
        """End both servers, the API server first."""
        for process in reversed(self._processes.values()):
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._starter.shutdown()

    def pid(self, program: str = "kube-apiserver") -> int:
        """Of one of the servers."""
        return self._processes[program].pid

    def kill_api_server(self) -> None:
        """End the API server as a machine does that loses its power; etcd stays."""
        process = self._processes["kube-apiserver"]
        process.kill()
        process.wait()

    @contextmanager
    def hanging(self, program: str = "kube-apiserver") -> Iterator[None]:
        """Meanwhile one of the servers stands still: it takes connections and answers none."""
        process = self._processes[program]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def request(
        self, method: str, path: str, document: Any = None, content_type: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        """One request as an administrator: the status code and what was answered."""
        with closing(http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=60)) as connection:
            body = None if document is None else json.dumps(document)
            connection.request(method, path, body, {"Content-Type": content_type, "Accept": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        try:
            return answer.status, json.loads(content)
        except ValueError:
            return answer.status, {"message": content.decode(errors="replace")}

    def create(self, path: str, document: Any) -> dict[str, Any]:
        """Make an object, or fail; the object as it is stored."""
        code, answer = self.request("POST", path, document)
        assert code == 201, answer
        return answer

    def change(self, path: str, change: Any, content_type: str = MERGE) -> dict[str, Any]:
        """Patch an object, or fail; the object as it is stored."""
        code, answer = self.request("PATCH", path, change, content_type)
        assert code == 200, answer
        return answer

    def told(self, *words: str, stdin: str | None = None) -> str:
        """What ``kubectl`` prints, which must not fail."""
        done = self.kubectl(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kubectl(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``kubectl`` as a user would."""
        return subprocess.run(
            [self._programs / "kubectl", f"--kubeconfig={self._directory / 'kubeconfig'}",
             f"--cache-dir={self._directory / 'cache'}", *words],
            input=stdin, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def apply(self, *files: Path) -> None:
        """Have the objects of these files, by server-side apply."""
        for file in files:
            self.told("apply", "--server-side", "-f", str(file))

    def plugin(self, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
        """Run a plugin of ``kubectl``, with this environment and no other."""
        return subprocess.run(
            [self._programs / "kubectl", *words], env=environment, capture_output=True, text=True, timeout=60
        )

    def wait_until(self, what: str, holds: Callable[[], bool], seconds: float = 30.0) -> None:
        """Fails where it does not come true in time, or a server has ended."""

        def between() -> None:
            ended = [process.args for process in self._processes.values() if process.poll() is not None]
            assert not ended, f"the API server is not {what}: {ended} ended\n{self._logs()}"
            time.sleep(0.1)

        eventually(holds, lambda: f"the API server is not {what}\n{self._logs()}", seconds, between)

    def _serves(self) -> bool:
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def _spawn(self, program: str, *options: str) -> None:
        with (self._directory / f"{program}.log").open("ab") as log:
            self._processes[program] = self._starter.submit(
                subprocess.Popen, with_parent_death_signal([self._programs / program, *options]),
                stdout=log, stderr=subprocess.STDOUT, cwd=self._directory,
            ).result()  # fmt: skip

    def _logs(self) -> str:
        logs = sorted(self._directory.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-2000:]}" for log in logs)

    def _make_keys(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self._directory / "ca.crt")
        server = authority.issue_cert("127.0.0.1", "localhost")
        admin = authority.issue_cert("admin@localhost", organization_name="system:masters", common_name="admin")
        for name, keys in (("server", server), ("admin", admin)):
            keys.private_key_pem.write_to_path(self._directory / f"{name}.key")
            keys.cert_chain_pems[0].write_to_path(self._directory / f"{name}.crt")
        self.kubeconfig_for(self._directory, {"client-certificate": "admin.crt", "client-key": "admin.key"})

    def kubeconfig_for(self, folder: Path, user: dict[str, str], server: str = "") -> Path:
        """Write a kubeconfig into ``folder`` that logs in as ``user``, the part of it of that name, at another ``server`` where
        one is named."""
        cluster = {"server": server or self.url, "certificate-authority": str(self._directory / "ca.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        return folder / "kubeconfig"

    def token(self, namespace: str, name: str) -> str:
        """A token of a ServiceAccount, which is made where it is not there. It may do what RBAC has given it: nothing."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.request("POST", accounts, {"metadata": {"name": name}})
        return str(self.create(f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"])


@asynccontextmanager
async def connected(
    cluster: ControlPlane,
    kubeconfig: Path | None = None,
    kind: type[C] = Client,  # type: ignore[assignment]
    **options: Any,
) -> AsyncIterator[C]:
    """An administrator's client, or one that logs in as ``kubeconfig`` says."""
    client = kind(await load_access(str(kubeconfig or cluster.kubeconfig)), **options)
    try:
        yield client
    finally:
        await client.close()


def connects(url_or_kubeconfig: str | Path) -> Callable[[], Coroutine[Any, Any, Client]]:
    """What an `Elector` makes its own client with: an administrator's, or one of a server that asks for no login."""

    async def connect() -> Client:
        if isinstance(url_or_kubeconfig, Path):
            return Client(await load_access(str(url_or_kubeconfig)))
        return Client(Access(Configuration(host=url_or_kubeconfig), "default", None, None))

    return connect


def config_map(
    name: str, namespace: str = NAMESPACE, labels: dict[str, str] | None = None, **data: str
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "data": data,
    }


async def until(what: str, holds: Callable[[], Any], seconds: float = 30.0, said: Callable[[], Any] = str) -> float:
    """Wait until ``holds``, which may be a coroutine function; how long it took in seconds. ``said`` explains a failure."""
    began = time.monotonic()
    while not (await found if inspect.isawaitable(found := holds()) else found):
        assert time.monotonic() - began < seconds, f"{what} has not come true within {seconds:g} s: {said()}"
        await asyncio.sleep(0.05)
    return time.monotonic() - began


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """It goes on in the block, and must not end by itself."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def away(cluster: ControlPlane, how: str) -> AsyncIterator[None]:
    """Meanwhile the API server is ``killed``, or it (``hanging``) or its ``etcd`` stands still."""
    if how != "killed":
        with cluster.hanging("etcd" if how == "etcd" else "kube-apiserver"):
            yield
        return
    await asyncio.to_thread(cluster.kill_api_server)
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.start_api_server)
