"""A real S3 server for tests, ``versitygw`` on a folder, which can be ended and started again on its port."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.waiting import eventually

VARIABLE = "RLJOB_VERSITYGW"
"""The path of the program, where it is not on the PATH."""
ACCESS_KEY, SECRET_KEY = "access-of-the-tests", "secret-of-the-tests"
BUCKET = "checkpoints"


def program() -> str:
    """The path of versitygw; skips the test where there is none."""
    found = os.environ.get(VARIABLE) or shutil.which("versitygw")
    if found is None:
        pytest.skip(f"no versitygw, which is the S3 server of these tests: set {VARIABLE} or put it on the PATH")
    return found


class S3Server:
    """The server of one folder, with one bucket. ``address`` is ``host:port``; ``prelude`` are words before its command."""

    def __init__(self, folder: Path, address: str = "", prelude: tuple[str, ...] = ()) -> None:
        self._program, self._prelude = program(), prelude
        self._folder = folder
        self.address = address or f"127.0.0.1:{free_ports(1)[0]}"
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "objects" / BUCKET).mkdir(parents=True)
        (folder / "users").mkdir()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to be the owner of the bucket."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }

    def path(self, key: str) -> Path:
        """The file that an object is kept in."""
        return self._folder / "objects" / BUCKET / key

    def start(self) -> None:
        command = [*self._prelude, self._program, "--port", self.address, "--iam-dir", str(self._folder / "users")]
        command += ["--quiet", "posix", str(self._folder / "objects")]
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, env={**os.environ, **keys}, stdout=log, stderr=log)
        eventually(self._answers, lambda: (self._folder / "log").read_text())

    def add_user(self, access_key: str, secret_key: str) -> None:
        """A user whom the server knows, and who may do nothing with the bucket."""
        words = ["--access", access_key, "--secret", secret_key, "--role", "user"]
        admin = ["admin", "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--endpoint-url", self.url]
        subprocess.run([self._program, *admin, "create-user", *words], check=True, capture_output=True)

    def stop(self) -> None:
        """End it at once; nothing answers at its port until it is started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        host, port = self.address.rsplit(":", 1)
        code = f"import socket; socket.create_connection(({host!r}, {port}), 0.5).close()"
        # It may be in another network than the test.
        return subprocess.run([*self._prelude, sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server that runs, and ends with the block."""
    server = S3Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def s3(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that runs, and whose owner's credentials this process has in its environment."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server
