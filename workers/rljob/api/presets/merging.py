"""A manifest laid over the preset that it names."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rljob.api.algorithm import AlgorithmSpec
from rljob.api.declaration import OF_ITS_ENVIRONMENT, Preset
from rljob.api.document import in_one_line
from rljob.api.job import RLJobSpec
from rljob.api.presets import PRESETS, REMOVABLE, leaves
from rljob.api.problems import plain


def with_preset(document: dict[str, Any]) -> dict[str, Any]:
    """``document`` with the values of its preset for fields that it does not set; itself where it names no known preset.

    Mappings are laid over each other deeply; everything else, lists included, is taken whole from the manifest. Works on a
    document that has not been checked yet: what has another shape than expected is left for the check.
    """
    preset = preset_of(document)
    return document if preset is None else {**document, "spec": _laid_over(document["spec"], preset)}


def preset_of(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What counts beside ``document`` of the preset that it names; None where it names none that is known.

    What makes no sense beside the manifest does not count: its author could not remove from it what is not in it."""
    name = value_at(document, "spec.preset")
    if not isinstance(name, str) or name not in PRESETS:
        return None
    preset, given = PRESETS[name], document["spec"]
    gone = [path for (field, value), paths in _GIVES_WAY.items() if value_at(given, field) == value for path in paths]
    if value_at(given, "algorithm.type") not in (
        None,
        preset.algorithm_type,
    ):  # which is refused, without more about its values
        gone += ("algorithm", "replay")
    gone += () if preset.is_whole_for(value_at(given, "environment.id")) else OF_ITS_ENVIRONMENT
    without, spec = value_at(given, "presetWithout"), preset.spec
    gone += [path for path in without if path in REMOVABLE] if isinstance(without, list) else ()
    for path in gone:
        spec = _without(spec, path.split("."))
    return spec


NO_ALGORITHM = (
    "PPO learns, as the manifest names no algorithm and PPO takes every kind of action; another is chosen with "
    "algorithm: {type: ApeXDQN}, IMPALA, SAC (of continuous actions, where steps are expensive) or Custom"
)


ATARI_BY_PPO = (
    "PPO's defaults are for vectors of numbers: preset: PPOAtari has what is usual for Atari games (512 units, an entropy bonus, "
    "a learning rate that falls)"
)


WITHOUT_BOUND = (
    "gamma is 1: where a time limit truncates episodes instead of the environment ending them, values add up beyond it without "
    "bound and spoil what is learned; take a gamma below 1, such as 0.999, unless every episode terminates"
)


def note_on(spec: RLJobSpec) -> str:
    """What the author of the job in force may not know, as a sentence: which algorithm was chosen where the manifest names none,
    what it does not have of its preset because it is about another environment, that defaults are not for its environment, that
    values may have no bound, or that nothing will be learned; empty where that is nothing."""
    return "; ".join(_notes(spec))


def _notes(spec: RLJobSpec) -> Iterator[str]:
    algorithm, is_atari = spec.algorithm, spec.environment.id.startswith("ALE/")
    if spec.preset is None and not algorithm.model_fields_set:
        yield NO_ALGORITHM
    preset = PRESETS.get(spec.preset or "")  # a job that another release has started may have one of that
    if preset is not None and not preset.is_whole_for(spec.environment.id):
        yield _of_another_environment(spec, preset)
    if spec.preset is None and is_atari and algorithm.filled() == AlgorithmSpec().filled():
        yield ATARI_BY_PPO
    if algorithm.shared.get("gamma") == 1:
        yield WITHOUT_BOUND
    budget, least = spec.success_policy.raw_frames, 0 if spec.replay is None else spec.replay.rate_limiter.min_size
    steps = least if budget is None else budget // (spec.environment.atari.frame_skip if is_atari else 1)
    if steps < least:
        yield (
            f"nothing will be learned: successPolicy.rawFrames ends the job after {steps:,} steps, and the first update is made "
            f"once {least:,} are stored (replay.rateLimiter.minSize)"
        )


def _of_another_environment(spec: RLJobSpec, preset: Preset) -> str:
    in_force = spec.model_dump(by_alias=True)
    listed = ", ".join(
        f"{path} {in_one_line(value)}"
        for path, value in leaves(preset.spec)
        if path.startswith(OF_ITS_ENVIRONMENT) and path != "environment.id" and value_at(in_force, path) != value
    )
    return (
        f"preset {preset.name} is of {preset.environment_id}, and for {spec.environment.id} this of it does not count: {listed}; "
        "write what holds there, too"
    )


def value_at(document: Any, path: str) -> Any:
    """What a document has at ``path`` (``spec.learner.resources``), None where it has nothing there."""
    for part in path.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _laid_over(given: Any, base: Any) -> Any:
    if not isinstance(given, dict) or not isinstance(base, Mapping):
        return given
    return {
        **{key: plain(item) for key, item in base.items() if key not in given},
        **{key: _laid_over(item, base.get(key)) for key, item in given.items()},
    }


def _without(node: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    head, *rest = path
    if not isinstance(node, Mapping) or head not in node:
        return node
    below = _without(node[head], rest) if rest else {}
    return {key: below if key == head else value for key, value in node.items() if key != head or below != {}}


_GIVES_WAY: Mapping[tuple[str, Any], Sequence[str]] = {
    # Only an evaluator could see either.
    ("evaluator.enabled", False): ("evaluator.triggerReturn", "successPolicy.targetReturn"),
    # An inference server answers every step with its newest weights.
    ("actors.inference", "Central"): ("algorithm.impala.weightsRefreshSteps",),
}
"""(field, value) in a manifest -> what of any preset then does not count."""
