"""``rljob eval``, ``rljob play``, ``rljob report`` and ``rljob compare``: what runs have learned."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rljob.archive import enter
from rljob.checkpoints.names import SCORED
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError
from rljob.files import replace
from rljob.loading import printing_aside
from rljob.strict_json import dumps
from rljob.threads import usable_cores

if TYPE_CHECKING:
    from rljob.evaluation.score import Played

_SHOWN_SECONDS = 5.0
"""Time between two lines about the games so far, where they are not drawn in place."""
_CHECKPOINT_HELP = (
    "A checkpoint, or a run, whose best (else newest) checkpoint is taken: a folder, or s3://bucket/prefix."
)

_TemperatureOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Logits of a sampled policy (IMPALA, PPO) are divided by it, 0 takes the best action.",
        show_default="the job's evaluationTemperature",
    ),
]


def evaluate(
    source: Annotated[str, typer.Argument(metavar="RUN_OR_CHECKPOINT", help=_CHECKPOINT_HELP, show_default=False)],
    episodes: Annotated[int, typer.Option(min=1, help="Games to play.")] = 100,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed of the first game; the others follow from it. With the seed of a run's verdict, the weights that it "
            "judged play the same games again.",
        ),
    ] = 1,
    epsilon: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Share of random actions.", show_default="the job's evaluationEpsilon"),
    ] = None,
    temperature: _TemperatureOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    summary: Annotated[
        bool, typer.Option(help="With --json: only the figures of all games together, in a short line.")
    ] = False,
    keep_from: Annotated[
        float | None,
        typer.Option(
            "--keep-from",
            metavar="MEAN",
            help="Of a run, as its experiment does: score what it has come to (its evaluator's best, else its newest "
            "weights), and keep that as its `judged` where the mean return is so much at least.",
            show_default=False,
        ),
    ] = None,
    scored: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of a run, as its population does: keep its newest checkpoint, whole, as scored-0 or scored-1, and score it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Score a policy with whole, unclipped games in plain Gymnasium: mean, standard error, episodes.

    Games are played and counted as in a run's evaluations, on all cores. It uses neither training's
    vector environments nor its handling of lives, so it checks training's own figures.

    Examples:

        rljob eval runs/pong-apex-20260101-120000

        rljob eval runs/pong-apex-20260101-120000 --episodes 100 --seed 7 --json
    """
    if scored is not None and scored not in SCORED:
        raise UsageError(f"--scored {scored}: allowed: {' or '.join(SCORED)}")
    require_data_plane("rljob eval")
    enter()
    import torch

    from rljob.algorithms.registry import algorithm
    from rljob.api.episode_metrics import in_words
    from rljob.checkpoints.files import policies
    from rljob.checkpoints.location import location
    from rljob.checkpoints.saved_policy import PolicyIdentity, come_to, keep_judged, keep_scored, load_policy
    from rljob.evaluation.players import Players
    from rljob.evaluation.score import tally
    from rljob.weights.flat import snapshot

    torch.set_num_threads(1)  # each core has a process of its own
    with printing_aside():
        place = location(source) if scored is None else keep_scored(location(source), scored)
        policy = load_policy(place, policies if keep_from is None else come_to)
    name, params = str(policy.manifest["algorithm"]), tempered(policy.params, temperature)
    share = algorithm(name).evaluation_epsilon(params) if epsilon is None else epsilon
    sampled_at = getattr(params, "evaluation_temperature", None)  # of a policy that has probabilities
    judged = dataclasses.replace(PolicyIdentity.of(policy.manifest).judged, params=params)
    with printing_aside(), closing(Players(judged, usable_cores(), episodes, share)) as players:
        weights = snapshot(policy.module, 0, 0, {})
        with closing(players.play(weights, range(episodes), seed, lambda: None)) as games:
            result = tally(_shown(games, episodes))
    figures: dict[str, Any] = {
        "environment": judged.spec.id,
        "mean": result.mean,
        "standard_error": result.standard_error if episodes > 1 else None,
        "episodes": len(result.returns),
        "epsilon": share,
        "temperature": sampled_at,
        "seed": seed,
    }
    if keep_from is not None and result.mean >= keep_from:
        keep_judged(place, figures)
    if scored is not None:
        uri = (place.absolute() if isinstance(place, Path) else place).as_uri()
        frames = policy.manifest["counters"]["raw_frames"]
        figures["checkpoint"] = {"from": uri, "digest": f"sha256:{policy.manifest['sha256']}", "rawFrames": frames}
    if as_json:
        if not summary:
            figures["returns"] = [float(value) for value in result.returns]
            figures |= {"metrics": dict(result.metrics), "metric_games": dict(result.metric_games)}
            figures["lengths_steps"] = [int(value) for value in result.lengths]
        typer.echo(dumps(figures))
    else:
        low, high = min(result.returns), max(result.returns)
        error = f" +- {result.standard_error:.2f} (standard error)" if episodes > 1 else ""
        how = f"epsilon {share:g}" if sampled_at is None else f"temperature {sampled_at:g}, epsilon {share:g}"
        typer.echo(
            f"{judged.spec.id}: mean return {result.mean:.2f}{error} "
            f"over {len(result.returns)} episodes, {low:g} to {high:g}, {how}, seed {seed}"
            + "".join(
                f", {name} {mean}" for name, mean in in_words(result.metrics, result.metric_games, episodes).items()
            )
        )


def play(
    source: Annotated[str, typer.Argument(metavar="CHECKPOINT", help=_CHECKPOINT_HELP, show_default=False)],
    video: Annotated[Path, typer.Option(help="The MP4 file to write.", show_default=False)],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the game.")] = 1,
    epsilon: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Share of random actions.", show_default="the job's evaluationEpsilon"),
    ] = None,
    temperature: _TemperatureOption = None,
) -> None:
    """Play one game and write it as a video.

    Example:

        rljob play runs/pong-apex-20260101-120000 --video pong.mp4
    """
    require_data_plane("rljob play")
    if video.suffix.lower() != ".mp4":
        raise UsageError(f"--video {video}: allowed: a file that ends in .mp4")
    if not video.parent.is_dir():
        raise UsageError(f"--video {video}: there is no folder {video.parent}; create it first")
    _can_write_video()
    from rljob.algorithms.registry import algorithm
    from rljob.checkpoints.location import location
    from rljob.checkpoints.saved_policy import PolicyIdentity, load_policy
    from rljob.evaluation.player import judged_policy
    from rljob.evaluation.video import record_game

    policy = load_policy(location(source))
    method, params = algorithm(str(policy.manifest["algorithm"])), tempered(policy.params, temperature)
    act = judged_policy(method, policy.module, params)
    share = method.evaluation_epsilon(params) if epsilon is None else epsilon
    judged = PolicyIdentity.of(policy.manifest).judged
    game = record_game(act, judged.spec.id, judged.env_params, video, seed=seed, epsilon=share, spec=judged.spec)
    typer.echo(f"{video}: return {game.points:g} in {game.length:,} steps")


def tempered(params: Any, temperature: float | None) -> Any:
    """The parameters with another evaluation temperature. Raises UsageError where the policy is not sampled."""
    if temperature is None:
        return params
    if not hasattr(params, "evaluation_temperature"):
        raise UsageError(
            "--temperature: allowed: only for policies that are sampled (IMPALA, PPO); this one takes the best action"
        )
    return params.updated(evaluation_temperature=temperature)


def _shown(games: Iterable[Played], episodes: int) -> Iterator[Played]:
    """Pass games on, and tell on stderr how many have ended and with which mean."""
    console = Console(stderr=True)
    ended, points, next_line = 0, 0.0, time.monotonic() + _SHOWN_SECONDS
    with console.status(f"0 of {episodes} games") as status:  # draws nothing where stderr is no terminal
        for game in games:
            ended, points = ended + 1, points + game.points
            words = f"{ended} of {episodes} games, mean {points / ended:.2f} so far"
            status.update(words)
            if not console.is_terminal and time.monotonic() >= next_line and ended < episodes:
                next_line = time.monotonic() + _SHOWN_SECONDS
                console.print(words, highlight=False, soft_wrap=True)
            yield game


def _can_write_video() -> None:
    missing = [name for name in ("imageio", "imageio_ffmpeg") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"--video: {' and '.join(missing)} not installed; the extra [video] brings both: pip install 'rljob[video]', "
            "or in a checkout .venv/bin/pip install -c constraints.txt -e '.[video]'"
        )


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or of experiments.", show_default=False)
    ],
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="Runs with the same value here are a group, such as algorithm.learningRate. Repeatable.",
            show_default="all settings that differ, but the seed",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Mean return that counts as solved.", show_default="that of the jobs' successPolicy"),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with curves, too.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare runs: interquartile mean of their verdicts, share solved, time to the target, and which group beats which.

    Runs that differ only in their seed are a group. Every figure has a 95 % interval; notes say what weakens it, such as fewer
    than 8 runs a group. An experiment stands for its runs, judged after equal raw frames.

    Examples:

        rljob compare runs/pong-*

        rljob compare runs/a-* runs/b-* --html comparison.html

        rljob compare runs/* --by algorithm.learningRate --target 400 --json
    """
    require_data_plane("rljob compare")
    if html is not None and not html.parent.is_dir():
        raise UsageError(f"--html {html}: there is no folder {html.parent}; create it first")
    if html is not None and html.is_dir():
        raise UsageError(f"--html {html}: is a folder; name a file, such as {html / 'comparison.html'}")
    from rljob.comparison.comparison import compare as compared
    from rljob.comparison.page import document, lines, render_comparison
    from rljob.strict_json import dumps

    comparison = compared(runs, by or (), target)
    if html is not None:
        try:
            replace(html, render_comparison(comparison))
        except OSError as error:
            raise UsageError(f"--html {html}: can't be written: {error.strerror}; name another file") from error
    typer.echo(dumps(document(comparison)) if as_json else "\n".join(lines(comparison)))
