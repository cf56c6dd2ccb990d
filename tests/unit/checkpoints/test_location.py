"""What names of places and of checkpoints mean, where a job keeps its own, and that a server's own words are not passed on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rljob.checkpoints.bucket import Bucket
from rljob.checkpoints.files import directory_in, stored
from rljob.checkpoints.location import directory_of, location
from rljob.checkpoints.names import (
    CheckpointProblem,
    StorageProblem,
    checkpoint_name,
    claim_name,
    claimed,
    newest_epoch,
    order,
)

from tests.support.jobs import job_of


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
