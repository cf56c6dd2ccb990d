"""`rljob demo` as it is typed, with the real kubectl and Helm on a real API server: what it refuses, and that what it made goes.

No node is there, so it is interrupted while it waits for the operator. Docker and kind are programs that write down how they were
called: neither runs here.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import VARIABLE
from tests.cluster.control_plane import CRD_FILE, EXPERIMENT_CRD_FILE, ControlPlane
from tests.support.chart import Chart, find_program
from tests.support.paths import ROOT
from tests.support.waiting import eventually

NAME = "rljob-demo"
ON = ("--context", "tests")
WITH_IMAGE = (*ON, "--image", "example.com/rljob-worker:1")
RECORDED = """#!/bin/sh
echo ${{0##*/}} "$@" >> {folder}/calls
case "$1 $2" in
"get clusters") test -f {folder}/made && echo {name} || echo "No kind clusters found." >&2;;
"create cluster") /bin/cat > {folder}/made;;
"delete cluster") /bin/rm {folder}/made;;
esac
exit 0
"""
HEARD = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from rljob_operator.__main__ import main; main()"
)
"""rljob, to which Ctrl-C comes also where the tests run in the background."""


@pytest.fixture(scope="module")
def bare(control_plane: ControlPlane, chart: Chart, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of its own, since the one that tests share has the CRDs. The others skip where there are no programs."""
    servers = ControlPlane(Path(os.environ[VARIABLE]).absolute(), tmp_path_factory.mktemp("demo"))
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


@pytest.fixture
def environment(bare: ControlPlane, tmp_path: Path) -> dict[str, str]:
    """The programs that a user has, and a kubeconfig that also knows the context of the demo's own cluster."""
    (tmp_path / "bin").mkdir()
    for name in ("kubectl", "helm"):
        (tmp_path / "bin" / name).symlink_to(str(find_program(name)))
    keys = {"client-certificate": "admin.crt", "client-key": "admin.key"}
    file = bare.kubeconfig_for(tmp_path, {key: str(bare.kubeconfig.parent / name) for key, name in keys.items()})
    config = json.loads(file.read_text())
    config["contexts"].append({**config["contexts"][0], "name": f"kind-{NAME}"})
    file.write_text(json.dumps(config))
    return {**os.environ, "PATH": str(tmp_path / "bin"), "KUBECONFIG": str(file)}


def demo(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEARD, "demo", *words], env=environment, cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], code: int) -> str:
    said = process.communicate(timeout=100)[0]
    assert (process.returncode, "Traceback" in said) == (code, False), said
    return said


def interrupted(bare: ControlPlane, process: subprocess.Popen[str]) -> str:
    """Ctrl-C while Helm waits for the operator."""
    said = ""
    while "> install the operator" not in said:
        said += (line := process.stdout.readline())
        assert line, said
    eventually(lambda: bare.kubectl("get", "deployment", "-n", NAME, "-o", "name").stdout, "there is no release", 90)
    os.killpg(process.pid, signal.SIGINT)
    return said + ended(process, 130)


def emptied(bare: ControlPlane) -> None:
    """The namespace, which is being deleted: a controller does so elsewhere."""
    place = f"/api/v1/namespaces/{NAME}"
    eventually(lambda: bare.request("GET", place)[1].get("status", {}).get("phase") == "Terminating", "it stays", 90)
    there = {**bare.request("GET", place)[1], "spec": {"finalizers": []}}
    assert bare.request("PUT", f"{place}/finalize", there)[0] == 200


def left(bare: ControlPlane) -> str:
    return bare.told("get", "crd", "-o", "name") + bare.told(
        "get", "namespace", NAME, "--ignore-not-found", "-o", "name"
    )


@pytest.mark.timeout(400)
def test_all_of_it_goes_again(bare: ControlPlane, environment: dict[str, str]) -> None:
    assert "there is nothing of rljob demo" in ended(demo(environment, *ON, "--down"), 0)
    said = interrupted(bare, demo(environment, *WITH_IMAGE))
    assert "interrupted; the same command goes on, `rljob demo --context tests --down` removes" in said
    assert "rljobs.rljob.dev" in left(bare)
    assert "> remove half an operator" in interrupted(bare, demo(environment, *WITH_IMAGE))

    bare.told("create", "namespace", "team")
    job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "mine", "namespace": "team"}}
    bare.told("create", "-f", "-", stdin=json.dumps({**job, "spec": {"environment": {"id": "CartPole-v1"}}}))
    for words in ((*ON, "--down"), WITH_IMAGE):  # both would remove the CRDs
        assert "namespace team has RLJobs, which would go with the demo's CRDs" in ended(demo(environment, *words), 2)
    bare.told("delete", "rljob", "-n", "team", "mine")

    gone = demo(environment, *ON, "--down")
    emptied(bare)
    ended(gone, 0)
    assert left(bare) == ""
    assert "there is nothing of rljob demo" in ended(demo(environment, *ON, "--down"), 0)


@pytest.mark.timeout(200)
def test_what_it_has_not_made_stays(bare: ControlPlane, environment: dict[str, str]) -> None:
    bare.told("create", "namespace", NAME)
    for words in (WITH_IMAGE, (*ON, "--down")):
        assert f"rljob demo has not made namespace {NAME}" in ended(demo(environment, *words), 2)
    bare.told("delete", "namespace", NAME, "--wait=false")
    emptied(bare)
    bare.apply(CRD_FILE, EXPERIMENT_CRD_FILE)
    try:
        assert "has RLJobs already, so nothing is installed: `rljob run" in ended(demo(environment, *WITH_IMAGE), 2)
        assert "there is nothing of rljob demo" in ended(demo(environment, *ON, "--down"), 0)
        assert "rljobs.rljob.dev" in left(bare)
    finally:
        bare.told("delete", "-f", str(CRD_FILE), "-f", str(EXPERIMENT_CRD_FILE))


@pytest.mark.parametrize(
    ("words", "without", "code", "says"),
    [
        ((), "", 2, "not on the PATH: kind (kind.sigs.k8s.io has it; or name a cluster of yours with --context)"),
        (WITH_IMAGE, "helm", 2, "not on the PATH: helm (helm.sh has it)"),
        ((*ON, "--down"), "kubectl", 2, "not on the PATH: kubectl (kubernetes.io has it)"),
        (ON, "", 2, "tests is no kind cluster: push an image (docs/images.md) and name it with --image"),
        ((*ON, "--image", "localhost:5000/worker"), "", 2, "allowed: REPO:TAG"),
        (("--context", "nope", *WITH_IMAGE[2:]), "", 69, "context was not found for specified context: nope"),
    ],
)
def test_what_is_missing_is_told(
    environment: dict[str, str], tmp_path: Path, words: tuple[str, ...], without: str, code: int, says: str
) -> None:
    if without:
        (tmp_path / "bin" / without).unlink()
    assert says in ended(demo(environment, *words), code)


@pytest.mark.timeout(300)
def test_a_cluster_of_its_own(bare: ControlPlane, environment: dict[str, str], tmp_path: Path) -> None:
    for name in ("kind", "docker"):
        program = tmp_path / "bin" / name
        program.write_text(RECORDED.format(folder=tmp_path, name=NAME))
        program.chmod(0o755)
    interrupted(bare, demo(environment))
    calls = (tmp_path / "calls").read_text().splitlines()
    image = f"localhost/rljob-worker:{NAME}"
    assert [call.replace(calls[4].split()[3], "ARCHIVE") for call in calls[1:]] == [
        f"kind create cluster --name {NAME} --wait 2m --config -",
        f"docker build --target worker-cpu -t {image} .",
        f"docker save -o ARCHIVE {image}",
        f"kind load image-archive ARCHIVE --name {NAME}",
    ]
    (node,) = json.loads((tmp_path / "made").read_text())["nodes"]
    assert "rljob demo has not made the kind cluster" in ended(demo(environment, "--down"), 2), "its node has no label"
    bare.create("/api/v1/nodes", {"metadata": {"name": "control-plane", "labels": node["labels"]}})
    ended(demo(environment, "--down"), 0)
    assert not (tmp_path / "made").exists()
    assert "there is nothing of rljob demo" in ended(demo(environment, "--down"), 0)
