"""``rljob compare`` as it is typed."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import invoke, printed, refused
from tests.support.judged_runs import judged_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [judged_run(folder / f"{at}", [10.0 * at] * 10 + [480.0] * 10, seed=at) for at in range(3)]


def test_words_json_and_page(runs: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    told = invoke("compare", *runs, "--html", page)
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout.startswith("CartPole-v1, verdicts of 100 games")
    written = page.read_bytes()
    assert written.startswith(b"<!doctype html>")
    assert json.loads(printed("compare", *runs, "--json", "--html", page))["groups"][0]["iqm"]["value"] == 480.0
    assert (page.read_bytes(), list(tmp_path.iterdir())) == (written, [page])


def test_groups_and_target_of_ones_choice(runs: list[Path]) -> None:
    found = json.loads(printed("compare", *runs, "--json", "--by", "seed", "--target", 500))
    assert [(group["settings"]["seed"], group["solved"]) for group in found["groups"]] == [
        ("0", 0),
        ("1", 0),
        ("2", 0),
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Missing argument"),
        (("gone", "gone-too"), "rljob: gone: no such folder"),
        (("{run}",), "give two runs to compare"),
        (("{run}", "{other}", "--by", "algorithm.ppo.learningrate"), "did you mean algorithm.learningRate?"),
        (("{run}", "{other}", "--target", "nan"), "--target nan: allowed: a number"),
        (("{run}", "{other}", "--html", "gone/page.html"), "there is no folder gone"),
        (("{run}", "{other}", "--html", "."), "--html .: "),
    ],
)
def test_what_is_wrong_is_said_with_exit_code_2(runs: list[Path], arguments: tuple[str, ...], says: str) -> None:
    assert says in refused("compare", *(argument.format(run=runs[0], other=runs[1]) for argument in arguments))
