"""Algorithms and environments of one's own: beside the manifest, and in images that are made as docs/plugins.md says."""

import os
from pathlib import Path

import pytest
import rljob
from rljob.api.document import dump_document, parse_document

from tests.e2e.cluster import LONG_SECONDS, Namespace, Object, endless, requests
from tests.support.documents import block

FILES_IMAGE, PACKAGE_IMAGE = "RLJOB_E2E_FILES_IMAGE", "RLJOB_E2E_PACKAGE_IMAGE"
ROLES = ("learner", "replay", "evaluator")


@pytest.fixture(scope="module")
def images() -> dict[str, str]:
    """Variable -> image, which nodes can pull."""
    missing = [name for name in (FILES_IMAGE, PACKAGE_IMAGE) if not os.environ.get(name)]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not set: images of one's own (docs/testing-on-kubernetes.md)")
    return {name: os.environ[name] for name in (FILES_IMAGE, PACKAGE_IMAGE)}


def of_the_page(image: str) -> Object:
    """The page's job with another image, and requests that fit a small cluster."""
    found = parse_document(block("yaml", "{name: soft-q-corridor}").encode(), "docs/plugins.md")
    spec = found["spec"]
    sections = {role: {**spec.get(role, {}), **requests()} for role in (*ROLES, "actors")}
    return {**found, "spec": {**spec, **sections, "image": image}}


def test_an_algorithm_and_an_environment_in_files_train(namespace: Namespace, images: dict[str, str]) -> None:
    namespace.apply(of_the_page(images[FILES_IMAGE]))
    namespace.wait_updates("soft-q-corridor", more_than=50)
    assert "q_taken" in namespace.learner_figures("soft-q-corridor"), "what the algorithm measures"
    namespace.wait_for("soft-q-corridor", "Ready", "True")
    assert namespace.job_status("soft-q-corridor")["restarts"] == {"counted": 0, "ignored": 0}


def test_an_environment_of_a_package_that_pip_has_installed_trains(
    namespace: Namespace, images: dict[str, str]
) -> None:
    namespace.apply(packaged("packaged", images[PACKAGE_IMAGE], {"id": "corridor:make", "kwargs": {"length": 5}}))
    namespace.wait_updates("packaged", more_than=10)
    namespace.wait_for("packaged", "Ready", "True")
    assert namespace.job_status("packaged")["restarts"] == {"counted": 0, "ignored": 0}


def test_what_the_image_lacks_fails_the_job_with_its_name(namespace: Namespace) -> None:
    """The worker image itself has no such package."""
    namespace.apply(packaged("lacking", os.environ["RLJOB_E2E_IMAGE"], {"id": "corridor:make"}))
    failed = namespace.wait_for("lacking", "Failed", "True")
    assert "module 'corridor' cannot be imported" in failed["message"], failed


def test_files_beside_the_manifest_train_and_a_changed_line_counts_for_the_next_job(
    namespace: Namespace, tmp_path: Path
) -> None:
    """The page's environment and algorithm. It has no image with them, and none is built."""
    place = {"namespace": namespace.name, "kubeconfig": str(namespace.kubeconfig)}
    (tmp_path / "corridor.py").write_text(block("python", "class Corridor("))
    (tmp_path / "soft_q.py").write_text(block("python", "class SoftQ("))
    manifest = of_the_page(os.environ["RLJOB_E2E_IMAGE"])
    (tmp_path / "job.yaml").write_text(dump_document(manifest))
    rljob.run(tmp_path / "job.yaml", set={"metadata.name": "first"}, **place)
    namespace.wait_updates("first", more_than=10)
    assert "q_taken" in namespace.learner_figures("first"), "what the algorithm measures"

    (tmp_path / "corridor.py").write_text(block("python", "class Corridor(") + 'raise ValueError("a changed line")\n')
    second = rljob.run(tmp_path / "job.yaml", set={"metadata.name": "second"}, **place).wait(LONG_SECONDS)
    assert second.status.state == "Failed"
    assert "ValueError: a changed line" in second.status.message
    assert namespace.job_status("first")["restarts"] == {"counted": 0, "ignored": 0}, "it goes on as it began"


def packaged(name: str, image: str, environment: Object) -> Object:
    """IMPALA without an end, on a vector environment of the user's own."""
    return endless(name, image=image, environment=environment)
