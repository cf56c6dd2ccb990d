"""`rljob export` of a cluster's job, as far as an API server without nodes goes: what can't be had is said in a sentence, and
the pod that reads a claim passes Pod Security and is gone afterwards, whatever came of it."""

from pathlib import Path
from typing import Any

from rljob.api.status import RLJobStatus
from rljob_operator.kube.apiserver.resources import PODS, VOLUME_CLAIMS
from rljob_operator.kube.render.rendering import offered
from rljob_operator.kube.render.settings import Settings

from tests.cluster.terminal import MERGE, User, said, status


def ended(**settings: Any) -> dict[str, Any]:
    """The status of a job that is Complete, and was started with these settings."""
    rendering = offered(RLJobStatus(), Settings(image="rl:1", **settings)).model_dump(mode="json", by_alias=True)
    return status(conditions=[said("Complete", "True", "TargetReturnReached")], controller={"rendering": rendering})


def test_what_can_not_be_had_is_said_in_a_sentence(user: User, tmp_path: Path) -> None:
    out = ("--format", "policy", "-o", str(tmp_path / "policy"))
    assert "there is no job none in namespace" in user.refused(2, "export", "none", *out)
    user.has("new", known={})
    assert "it has not been started yet" in user.refused(2, "export", "new", *out)
    user.has("lost", known=ended(checkpoint_size=""))
    assert "went with it" in user.refused(2, "export", "lost", *out)
    user.has("gone", known=ended())
    assert "claim gone-learner does not exist any more" in user.refused(2, "export", "gone", *out)
    bucket = {"storage": {"objectStore": {"url": "s3://mine/pong", "endpoint": "https://minio:9000"}}}
    user.has("bucket", known=ended(), checkpoint=bucket)
    assert "`rljob eval s3://mine/pong` read them there with AWS_ENDPOINT_URL=https://minio:9000" in user.refused(
        2, "export", "bucket", *out
    )
    assert not list(tmp_path.iterdir())


def test_the_pod_that_reads_is_let_in_and_gone_afterwards(user: User, tmp_path: Path) -> None:
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    user.cluster.request("PATCH", f"/api/v1/namespaces/{user.namespace}", level, MERGE)
    least = {"type": "Container", "min": {"cpu": "900m", "memory": "1Gi"}}  # the learner asks for more
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "least"}, "spec": {"limits": [least]}}
    user.cluster.create(f"/api/v1/namespaces/{user.namespace}/limitranges", limits)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "pong-learner"}, "spec": spec}
    user.cluster.create(VOLUME_CLAIMS.path(user.namespace), claim)
    user.has("pong", known=ended())
    result = user.types("export", "pong", "--format", "policy", "-o", str(tmp_path / "policy"), "--timeout", "1")
    assert result.exit_code == 2, result.output
    assert "reads the checkpoints on claim pong-learner" in result.stderr
    assert "did not come up within 1 s" in result.stderr
    assert user.cluster.request("GET", PODS.path(user.namespace))[1]["items"] == []
