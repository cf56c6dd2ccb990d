"""Where checkpoints lie, which of them is the newest, and which one a run starts from."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.bucket import Bucket
from rljob.checkpoints.files import VerifiedFiles, directory_in, stored
from rljob.checkpoints.location import directory_of, location
from rljob.checkpoints.names import (
    MANIFEST,
    TENSORS,
    CheckpointProblem,
    StorageProblem,
    checkpoint_name,
    claim_name,
    claimed,
    newest_epoch,
    order,
)
from rljob.checkpoints.restore_from import STARTED_FROM, begins_elsewhere, named_checkpoint, started_from

from tests.support.jobs import job_of
from tests.support.specs import spec_of
from tests.unit.learner.learner_builders import SPEC, identity, parameters


def test_paths_and_uris_name_places() -> None:
    assert [location(text) for text in ("runs/a", "file:///runs/a%20b")] == [Path("runs/a"), Path("/runs/a b")]
    where = location("s3://bucket//a/b c/")
    assert (where.bucket.name, where.key, where.name, str(where.parent)) == ("bucket", "a/b c", "b c", "s3://bucket/a")
    assert str(where / "best") == (where / "best").as_uri() == "s3://bucket/a/b c/best"
    assert str(location("s3://bucket") / "best") == "s3://bucket/best"
    for text in ("gs://bucket/a", "file://elsewhere/a", "s3://", "s3://bucket/../a"):
        with pytest.raises(CheckpointProblem, match="s3://bucket/prefix"):
            location(text)


def test_a_job_names_its_place(tmp_path: Path) -> None:
    spec = {"preset": "CartPoleApeX"}
    assert directory_of(job_of(spec), tmp_path) == tmp_path / "checkpoints"
    store = {"url": "s3://bucket/a", "endpoint": "https://store.example"}
    where = directory_of(job_of({**spec, "checkpoint": {"storage": {"objectStore": store}}}), tmp_path)
    assert (str(where), where.bucket.endpoint) == ("s3://bucket/a", "https://store.example")


def test_a_run_folder_has_its_checkpoints_where_its_job_says(tmp_path: Path) -> None:
    text = "apiVersion: rljob.dev/v1alpha1\nkind: RLJob\nmetadata: {name: a}\nspec:\n  preset: CartPoleApeX\n"
    (tmp_path / "job.yaml").write_text(text + "  checkpoint: {storage: {objectStore: {url: 's3://bucket/a'}}}\n")
    assert str(directory_in(tmp_path)) == "s3://bucket/a"
    (tmp_path / "job.yaml").write_text(text)
    assert directory_in(tmp_path) == tmp_path / "checkpoints"


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        ("status code: 404 Not Found: <Error><Code>NoSuchBucket</Code>", "there is no bucket shelf"),
        ("status code: 403 Forbidden: <Code>SignatureDoesNotMatch</Code>", "does not accept the credentials"),
        ("status code: 401 Unauthorized: ", "does not accept the credentials"),
        ("status code: 403 Forbidden: <Code>AccessDenied</Code>", "the credentials may not write"),
        ("status code: 301 Moved: <Code>PermanentRedirect</Code>", "set AWS_REGION"),
        ("status code: 503 : <Code>SlowDown</Code>", "could not write in s3://shelf: it answered 503 SlowDown"),
        ("Error performing PUT http://169.254.169.254/latest/api/token: TimedOut", "there are no credentials"),
        ("error sending request  kind: Connect, ConnectionRefused", "can't be reached"),
        ("error sending request  kind: Timeout", "did not answer in time"),
    ],
)
def test_an_error_is_one_sentence_without_what_was_sent(answer: str, meant: str) -> None:
    sent = "<AWSAccessKeyId>AKIAXYZ</AWSAccessKeyId><StringToSign>AWS4 s3cr3t</StringToSign>\nhttps://u:pw@host?sig=1"
    sentence = Bucket("shelf")._sentence(f"{answer}{sent}", "write")
    assert meant in sentence
    assert [word for word in ("\n", "AKIAXYZ", "s3cr3t", "sig=1", "pw@") if word in sentence] == []


def test_a_missing_package_is_named_with_how_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(StorageProblem, match=r"pip install 'rljob\[s3\]'"):
        stored(location("s3://bucket/a"))


NUMBERS = st.tuples(st.integers(0, 999_999), st.integers(0, 999_999_999_999))


@given(NUMBERS, NUMBERS)
def test_names_sort_by_epoch_and_then_by_updates(one: tuple[int, int], other: tuple[int, int]) -> None:
    names = [checkpoint_name(*each) for each in (one, other)]
    assert ([order(name) for name in names], names[0] < names[1]) == ([one, other], one < other)


def test_what_else_lies_there_is_no_checkpoint() -> None:
    for name in ("best", "epoch-000002", "step-", "step-1.partial", ".step-1.partial", "epoch-1-step-2-3", "step-٣"):
        assert order(name) is None
    assert order("step-000000000200") == (0, 200), "one from before there were epochs is older than any with one"
    assert (claimed(claim_name(12)), claimed(checkpoint_name(12, 1))) == (12, None)


@pytest.mark.parametrize(
    ("names", "epoch"),
    [
        ([], 0),
        (["best", "step-5"], 0),
        ([claim_name(3), checkpoint_name(2, 900), "best"], 3),
        ([claim_name(3), checkpoint_name(4, 1)], 4),
    ],
)
def test_the_newest_epoch_is_taken_or_has_written(names: list[str], epoch: int) -> None:
    assert newest_epoch(names) == epoch


def named(uri: str) -> VerifiedFiles | None:
    spec = {
        "algorithm": {"type": "ApeXDQN"},
        "environment": {"id": "CartPole-v1"},
        "checkpoint": {"restoreFrom": uri},
    }
    return named_checkpoint(job_of(spec), SPEC)


def written(directory: Path, name: str) -> Path:
    path, _ = checkpoint.write(directory, name, {"online.x": torch.ones(1)}, identity(parameters()).document())
    return path


def test_a_run_names_its_newest_and_a_checkpoint_itself(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    old, new = (written(run / "checkpoints", name) for name in ("step-1", "step-2"))
    for uri, path in (
        (run.as_uri(), new),  # with %20 in it
        ((run / "checkpoints").as_uri(), new),
        (old.as_uri(), old),
        (f"file://localhost{old}", old),
    ):
        found = named(uri)
        assert found.path == path
    (new / TENSORS).write_bytes(b"damaged")
    found = named(run.as_uri())
    assert found.path == old
    assert named("Latest") is named("None") is None


def test_what_names_none_is_told_with_what_would_be_right(tmp_path: Path) -> None:
    def refused(uri: str, *words: str) -> None:
        with pytest.raises(CheckpointProblem) as problem:
            named(uri)
        assert [word for word in ("spec.checkpoint.restoreFrom", *words) if word not in str(problem.value)] == []

    for uri, *words in (
        ("gs://bucket/run/4000", "can't be read here", "file:///path/to/run", "s3://bucket/prefix"),
        ("file://elsewhere/runs/pong", "can't be read here"),
        (f"file://{tmp_path}/nowhere", "is no folder here"),
        (f"file://{tmp_path}", "holds no checkpoint that verifies"),
    ):
        refused(uri, *words)
    path = written(tmp_path, "step-1")
    manifest = json.loads((path / MANIFEST).read_text())

    longer, more = (spec_of("Test/Vectors-v0", (size,), "float32", 1, actions) for size, actions in ((5, 2), (4, 3)))
    for change, said in (
        ({"algorithm": "IMPALA"}, "expected is a policy of ApeXDQN, what came is one of IMPALA"),
        (
            {"environment": asdict(longer)},
            "observation: vector float32 [5] where this one has observation: vector float32 [4]",
        ),
        (
            {"environment": asdict(more)},
            "action: Discrete int64 [] of 3 where this one has action: Discrete int64 [] of 2",
        ),
        ({"environment": {"id": "Test/Vectors-v0", "frame_shape": [4]}}, "does not say what it was trained in"),
    ):
        (path / MANIFEST).write_text(json.dumps({**manifest, **change}))
        refused(path.as_uri(), said)
    (path / TENSORS).write_bytes(b"other")
    refused(path.as_uri(), "is damaged")
    refused(f"file://{tmp_path}", "holds no checkpoint that verifies", "is damaged")


@pytest.mark.parametrize(
    ("restore_from", "newest", "begins"),
    [
        *((word, newest, False) for word in ("Latest", "None") for newest in (None, {}, {STARTED_FROM: "s3://a"})),
        ("s3://a/b", None, True),
        ("s3://a/b", {STARTED_FROM: ""}, True),
        ("s3://a/b", {STARTED_FROM: "s3://a/c"}, True),
        ("s3://a/b", {STARTED_FROM: "s3://a/b"}, False),
        ("s3://a/b", {}, False),  # one from before that was written
    ],
)
def test_only_checkpoints_that_began_from_it_are_the_jobs_own(
    restore_from: str, newest: dict[str, object] | None, begins: bool
) -> None:
    """Those of a job that had the place before are not, whatever it began from itself."""
    job = job_of({"preset": "CartPoleApeX", "checkpoint": {"restoreFrom": restore_from}})
    assert started_from(job) == ("" if restore_from in ("Latest", "None") else restore_from)
    assert begins_elsewhere(job, newest) == begins
