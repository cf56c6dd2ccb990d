"""The rows of the zoo, and its page from their folders."""

import re
from pathlib import Path

import pytest
from rich.console import Console
from rljob.api import parse_job
from rljob.api.examples import ZOO, by_environment, examples, examples_for
from rljob.api.experiment_check import parse_experiment
from rljob.api.load import read_manifest
from rljob.comparison.estimates import Estimate
from rljob_operator.verbs.run import _note

from benchmarks.zoo import PAGE, PUBLISHED, Published, page, row, verdict
from tests.support.experiment_runs import document, experiment_folder

ROWS = [name for name in examples() if name.startswith(ZOO)]


@pytest.mark.timeout(300)
def test_every_row_is_five_seeds_of_a_whole_budget_with_a_published_score() -> None:
    for name in ROWS:
        experiment = parse_experiment(read_manifest(Path(name)))
        spec = parse_job(experiment.manifest(0, 1, experiment.raw_frames)).spec
        assert (f"{ZOO}{experiment.name}", experiment.spec.seeds, spec.seed) == (name, 5, 1)
        assert not spec.evaluator.enabled, "it would choose the best of a seed's policies"
        assert spec.success_policy.target_return is None, "it would end a seed before its budget"
        assert spec.active_deadline_seconds is None, "it would fail on a slow machine"
        assert experiment.name in PUBLISHED
    listed = re.findall(r"manifests/zoo/([a-z0-9-]+)\.yaml", PAGE.read_text())
    assert sorted(f"{ZOO}{name}" for name in listed) == ROWS


def test_examples_are_found_by_their_environment() -> None:
    assert sorted(name for names in by_environment().values() for name in names) == sorted(examples())
    assert "pong-vtrace" in examples_for("ALE/Pong-v5"), "its preset names the game"
    assert list(examples_for("ale_py:ALE/Pong-v5")) == list(examples_for("ALE/Pong-v5"))
    assert not examples_for("Pong-v5")


def test_a_run_of_an_environment_alone_names_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    def said(**spec: object) -> str:
        head = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "mine"}}
        _note(parse_job({**head, "spec": spec}), Console(width=200))
        return capsys.readouterr().out

    bare = said(environment={"id": "CartPole-v1"})
    assert (
        "the zoo has settings for CartPole-v1: rljob run zoo/cartpole-apex or zoo/cartpole-ppo or zoo/cartpole-vtrace\n"
        in bare
    )
    for others in (
        {"environment": {"id": "CartPole-v1"}, "algorithm": {"type": "PPO"}},
        {"environment": {"id": "CartPole-v1"}, "preset": "PPOVector"},
        {"environment": {"id": "Blackjack-v1"}},
    ):
        assert "the zoo" not in said(**others)


def test_a_row_of_the_page_from_a_folder(tmp_path: Path) -> None:
    scores = [480.0, 500.0, 100.0, 470.0, 490.0]
    experiment = document([1e-3], seeds=5) | {"metadata": {"name": "cartpole-ppo"}}
    folder = experiment_folder(tmp_path / "e", experiment, lambda rate, seed, frames: scores[seed - 1])
    name, line = row(folder, "A", "abcd1234")
    link, score, solved, frames, seconds, about, published, _ = line.strip("| ").split(" | ")
    assert (name, link) == ("cartpole-ppo", "[cartpole-ppo](../manifests/zoo/cartpole-ppo.yaml)")
    assert score.startswith("480 ("), "the mean of 470, 480 and 490"
    assert (solved, frames, seconds) == ("3 of 5", "9,000", "18")
    assert about.endswith(", A, abcd1234")
    assert published == "500 (RL Zoo, 100k)"

    before = page([("acrobot-ppo", "| [acrobot-ppo](x) | -90 |")], "", ["acrobot-ppo", "cartpole-ppo"])
    assert "\nNot run with five seeds yet: [cartpole-ppo](../manifests/zoo/cartpole-ppo.yaml).\n" in before
    after = page([(name, line)], before, ["acrobot-ppo", "cartpole-ppo"])
    assert f"---|\n| [acrobot-ppo](x) | -90 |\n{line}\n" in after
    assert "Not run" not in after


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(1.0, 1.9, "**below**"), (1.0, 2.0, "inside"), (2.5, 2.6, "inside"), (3.0, 4.0, "inside"), (3.1, 4.0, "above")],
)
def test_a_verdict_is_about_the_whole_interval(low: float, high: float, said: str) -> None:
    assert verdict(Estimate((low + high) / 2, low, high), Published(2.0, 3.0, "")) == said
