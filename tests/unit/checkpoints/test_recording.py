"""What a recording holds, and what is read of one that was not written whole, or is none."""

import gzip
import json
from pathlib import Path

import pytest
from rljob.checkpoints.names import CheckpointProblem
from rljob.checkpoints.recording import METRICS, MOST_LINES, packed, unpacked

VERDICT = '{"kind":"evaluation","mean":20.5}'


def lines(count: int) -> list[str]:
    return [json.dumps({f"figure/{k}": n * 0.7531 + k**0.5 for k in range(40)}) for n in range(count)]


def recorded(folder: Path, written: list[str]) -> bytes:
    (folder / METRICS).write_text("\n".join(written))
    return packed("kind: RLJob\n", folder)


def test_a_line_that_its_learner_is_writing_is_left_out(tmp_path: Path) -> None:
    job, metrics, damage = unpacked(recorded(tmp_path, [*lines(700), '{"figure/0": 1']))
    assert (job, damage) == ("kind: RLJob\n", "")
    assert metrics.decode().splitlines() == lines(700)


def test_a_long_run_has_no_more_points_and_all_that_has_a_kind(tmp_path: Path) -> None:
    written = lines(10 * MOST_LINES)
    written[1::500] = [VERDICT] * len(written[1::500])
    found = unpacked(recorded(tmp_path, [*written, ""]))[1].decode().splitlines()
    assert found.count(VERDICT) == written.count(VERDICT)
    assert len(found) <= MOST_LINES + written.count(VERDICT) + 1
    assert (found[0], found[-1]) == (written[0], written[-1])


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_what_lies_before_a_damage_is_read_and_the_damage_told(tmp_path: Path, damage: str) -> None:
    content = bytearray(recorded(tmp_path, [*lines(900), ""]))
    middle = len(content) // 2
    if damage == "cut":
        del content[middle:]
    else:
        content[middle] ^= 0xFF
    _, metrics, told = unpacked(bytes(content))
    found = metrics.decode(errors="replace").splitlines()
    assert told
    assert 200 < len(found) <= 900
    assert found[:200] == lines(900)[:200]


@pytest.mark.parametrize(
    "content", [b"", b"not gzip", b"\x1f\x8b", gzip.compress(b"1\n", mtime=0), gzip.compress(b"{}\n", mtime=0)]
)
def test_what_is_no_recording_is_refused_in_a_sentence(content: bytes) -> None:
    with pytest.raises(CheckpointProblem, match=r"^its recording can't be read \(.+\)$"):
        unpacked(content)
