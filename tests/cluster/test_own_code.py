"""`rljob run -n` and `rljob.run` with the files beside a manifest: what a real API server has afterwards, and what is refused."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rljob
from rljob.api.document import dump_document, parse_document
from rljob.archive import ENTRY
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, RLEXPERIMENTS, RLJOBS, Resource
from rljob_operator.kube.render import names

from tests.cluster.terminal import User, said, status
from tests.cluster.test_verb_refusals import VIEW, grant
from tests.support.documents import write_environment
from tests.support.waiting import eventually

CREATE = {"apiGroups": ["rljob.dev"], "resources": ["rljobs"], "verbs": ["create"]}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The manifest of the page, with its environment beside it."""
    write_environment(tmp_path)
    return tmp_path / "corridor.yaml"


def of(user: User, resource: Resource) -> dict[str, dict[str, Any]]:
    found = user.cluster.request("GET", resource.path(user.namespace))[1]["items"]
    return {each["metadata"]["name"]: each for each in found if each["metadata"]["name"] != "kube-root-ca.crt"}


def owners(config_map: dict[str, Any]) -> list[str]:
    return [each["uid"] for each in config_map["metadata"]["ownerReferences"]]


def test_the_folder_goes_along_in_a_config_map_of_the_job(user: User, job: Path) -> None:
    (job.parent / "requirements.txt").write_text("pygame\n")
    printed = user.sees("run", str(job))
    assert "corridor: created; `rljob get -n" in printed
    assert "warning: requirements.txt is not installed there" in printed
    stored, ((name, made),) = user.stored("corridor"), of(user, CONFIG_MAPS).items()
    assert stored["spec"]["environment"]["id"] == "corridor.py:make"
    assert f"sha256:{name.removeprefix('corridor-code-')}" in stored["spec"]["code"]["digest"]
    assert (stored["spec"]["code"]["configMap"], list(made["binaryData"])) == (name, [ENTRY])
    assert (made["immutable"], owners(made)) == (True, [stored["metadata"]["uid"]])

    (job.parent / "corridor.py").write_text((job.parent / "corridor.py").read_text() + "# a change\n")
    refused = user.refused(2, "run", str(job))
    assert "give this one another name, or delete that one: that one keeps the spec and the code" in refused
    assert list(of(user, CONFIG_MAPS)) == [name], "nothing of the refused one stays"
    other = json.dumps({"spec": {"code": {"digest": f"sha256:{'0' * 64}"}}})
    patched = user.cluster.kubectl("patch", "rljob", "corridor", "-n", user.namespace, "--type=merge", "-p", other)
    assert "spec.code" in patched.stderr and "suspend" in patched.stderr  # noqa: PT018


def test_the_same_code_of_a_later_job_outlives_the_one_before(user: User, job: Path) -> None:
    """No garbage collector runs here: that of the job before is still to go, by its owner's uid."""
    user.sees("run", str(job))
    first = user.stored("corridor")["metadata"]["uid"]
    user.cluster.request("DELETE", user.path("corridor"))
    user.sees("run", str(job))
    (made,) = of(user, CONFIG_MAPS).values()
    assert owners(made) == [first, user.stored("corridor")["metadata"]["uid"]]


def test_no_right_to_make_config_maps(user: User, job: Path, tmp_path: Path) -> None:
    poor = grant(user, "poor", [*VIEW, CREATE], tmp_path / "poor")
    assert "lacks the right to create configmaps in namespace" in poor.refused(77, "run", str(job))
    assert of(user, RLJOBS) == {}


@pytest.mark.parametrize(
    ("ends", "code", "words"),
    [
        (lambda: said("Complete", "True", "TargetReturnReached", "mean -4"), 0, "corridor: Complete (TargetReturnReached)"),
        (lambda: said("Failed", "True", "PodFailurePolicy", "corridor.py:9"), 1, "corridor: Failed (PodFailurePolicy)"),
        (None, 1, "not at its end within 1 s; it is Starting"),
    ],
)  # fmt: skip
def test_exit_codes_for_a_pipeline(
    user: User, job: Path, ends: Callable[[], dict[str, Any]] | None, code: int, words: str
) -> None:
    def end() -> None:
        eventually(lambda: "corridor" in of(user, RLJOBS), "the job was not created")
        assert ends is not None
        user.cluster.change(f"{user.path('corridor')}/status", {"status": status(conditions=[ends()])})

    ending = threading.Thread(target=end if ends is not None else lambda: None)
    ending.start()
    result = user.types("run", str(job), "--wait", *(("--timeout", "1") if ends is None else ()))
    ending.join()
    assert (result.exit_code, words in result.output) == (code, True), result.output


def test_what_is_of_this_machine_is_refused_with_a_cluster(user: User, job: Path) -> None:
    assert "are for a run on this machine" in user.refused(2, "run", str(job), "--max-seconds", "5")
    assert "-n NAMESPACE names" in user.refused(2, "run", str(job), "--wait", where=())


def test_an_experiment_and_a_notebook_take_it_along(user: User, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"namespace": user.namespace, "kubeconfig": str(user.kubeconfig)}
    document = parse_document(job.read_bytes(), "corridor.yaml")
    sweep = {
        "apiVersion": "rljob.dev/v1alpha1", "kind": "RLExperiment", "metadata": {"name": "sweep"},
        "spec": {"template": {"spec": document["spec"]}, "seeds": 2, "budget": {"rawFrames": 10_000}},
    }  # fmt: skip
    (job.parent / "sweep.yaml").write_text(dump_document(sweep))
    user.sees("run", str(job.parent / "sweep.yaml"))
    made = of(user, RLEXPERIMENTS)["sweep"]
    (name,) = of(user, CONFIG_MAPS)
    assert made["spec"]["template"]["spec"]["code"]["configMap"] == name
    assert owners(of(user, CONFIG_MAPS)[name]) == [made["metadata"]["uid"]]

    monkeypatch.chdir(job.parent)  # where a dict's files are looked for
    run = rljob.run(document, **place)
    code = user.stored("corridor")["spec"]["code"]
    assert code["configMap"] == names.code("corridor", code["digest"].removeprefix("sha256:"))
    assert run.status.state == "Starting"
