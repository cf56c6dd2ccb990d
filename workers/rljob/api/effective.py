"""The job in force: a manifest laid over the preset that it names, with every default that follows from others, or from the
algorithm, filled in, and the memory of what its user wrote.

``model_fields_set`` of a job and of each of its sections holds the fields that the manifest has, and nothing of presets and
defaults. A mapping of the manifest's own keys that a preset also fills, such as ``resources.requests``, is merged all the same.

No default follows from what may change at any time, such as the number of actors, unless it may change at any time itself:
roles read most of these when they start, and would go on with the old value.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.algorithm import AlgorithmSpec
from rljob.api.declaration import OF_ITS_ENVIRONMENT, Computed, Field, Preset
from rljob.api.document import in_one_line
from rljob.api.fields import default_in_words, default_of
from rljob.api.job import RLJob, RLJobSpec
from rljob.api.presets import PRESETS, REMOVABLE, leaves
from rljob.api.problems import plain, value_at
from rljob.api.replay import RateLimiter, ReplaySpec
from rljob.api.roles import AutoscalingSpec, InferenceSpec
from rljob.api.types import plain_number

M = TypeVar("M", bound=BaseModel)


def effective(job: RLJob, written: Mapping[str, Any]) -> RLJob:
    """``job``, validated with its preset, as it is in force; ``written`` is its manifest."""
    spec = _with_sections(job.spec)
    its = BUILT_IN[spec.algorithm.type].defaults if spec.algorithm.type in BUILT_IN else {}
    for field in (*(each for each in its if each not in _GENERAL), *_GENERAL):
        value = partial(_value, _GENERAL.get(field), its.get(field, _usual(field)), spec)
        spec = _filled(spec, *field, value)
    return as_written(job.model_copy(update={"spec": spec}), written)


def _with_sections(spec: RLJobSpec) -> RLJobSpec:
    """The sections that a job of its algorithm has, whether they were written or not."""
    algorithm = spec.algorithm.filled()
    declared = BUILT_IN.get(algorithm.type)
    replay = ReplaySpec() if declared is not None and declared.from_replay and spec.replay is None else spec.replay
    of_learner = {"accelerator": spec.learner.accelerator.as_limited(spec.learner.resources)}
    of_inference = {"accelerator": spec.inference.accelerator.as_limited(spec.inference.resources)}
    return spec.model_copy(
        update={
            "algorithm": algorithm,
            "replay": replay,
            "learner": spec.learner.model_copy(update=of_learner),
            "inference": spec.inference.model_copy(update=of_inference),
        }
    )


def _filled(node: M, model: type[BaseModel], name: str, value: Callable[[], Any]) -> M:
    """``node`` with ``name`` of every section of type ``model`` in it that does not have it from manifest or preset."""
    if type(node) is model:
        return node if name in node.model_fields_set else node.model_copy(update={name: value()})
    below = {each: child for each in type(node).model_fields if isinstance(child := getattr(node, each), BaseModel)}
    filled = {each: _filled(child, model, name, value) for each, child in below.items()}
    changed = {each: child for each, child in filled.items() if child is not below[each]}
    return node.model_copy(update=changed) if changed else node


def as_written(node: M, written: Mapping[str, Any]) -> M:
    """A copy whose ``model_fields_set``, and those of the sections below, name what ``written`` has."""
    given: set[str] = set()
    sections: dict[str, BaseModel] = {}
    for name, field in type(node).model_fields.items():
        item, child = written.get(field.alias or name), getattr(node, name)
        if item is not None:
            given.add(name)
        if isinstance(child, BaseModel):
            sections[name] = as_written(child, item if isinstance(item, Mapping) else {})
    copy = node.model_copy(update=sections)
    copy.model_fields_set.clear()
    copy.model_fields_set.update(given)
    return copy


class _General(NamedTuple):
    """A default in jobs of every algorithm."""

    words: str
    """What it is, for people; the usual value stands in the braces."""
    value: Callable[[RLJobSpec, Any], Any]
    """What it is in a job whose fields before it are in place, of the usual value: the algorithm's own
    (`rljob.api.declaration.BuiltIn.defaults`), else that of the type."""


def _drawn(spec: RLJobSpec) -> tuple[int, int]:
    """Transitions of a batch and of a chunk; 0 where they are parameters of a Custom algorithm, which not every program can load.
    Whether the limiter fits those is asked where it is loaded."""
    declared = BUILT_IN.get(spec.algorithm.type)
    if declared is None or not declared.from_replay:
        return 0, 0
    parameters = spec.algorithm.parameters
    return parameters.batch_size, parameters.chunk_length


def _min_size(spec: RLJobSpec, usual: int) -> int:
    capacity = spec.required_replay.capacity
    return max(min(usual, capacity), min(_drawn(spec)[0], capacity))


def _error_buffer(spec: RLJobSpec, usual: float) -> float:
    """A tenth of the samples that minSize stands for, but never less than four chunks of 50 steps a shard, so that neither side
    waits for the other at every chunk; and never so narrow that the next chunk may not be inserted and the next batch not be
    drawn (`rules.replay.no_mutual_wait`)."""
    replay, (batch, chunk) = spec.required_replay, _drawn(spec)
    limiter, ratio = replay.rate_limiter, max(1.0, replay.rate_limiter.samples_per_insert)
    least = replay.shards * max(2 * ratio * chunk, float(batch))
    return max(ratio * max(0.1 * limiter.min_size, 200.0 * replay.shards), least)


_GENERAL: Final[Mapping[Field, _General]] = {
    (RateLimiter, "min_size"): _General("{}, or capacity where that is less; at least batchSize", _min_size),
    (RateLimiter, "error_buffer"): _General(
        "a tenth of the samples of minSize, at least shards * max(200 * samplesPerInsert, 2 * samplesPerInsert * chunkLength, "
        "batchSize)",
        _error_buffer,
    ),
    (InferenceSpec, "max_batch_size"): _General(
        "{}, or actors.envsPerActor where that is more", lambda spec, usual: max(usual, spec.actors.envs_per_actor)
    ),
    (AutoscalingSpec, "max_replicas"): _General(
        "{}, or actors.replicas or minReplicas where that is more",
        lambda spec, usual: max(1, usual, spec.actors.replicas, spec.autoscaling.min_replicas),
    ),
}


def _usual(field: Field) -> Any:
    return field[0].model_fields[field[1]].get_default(call_default_factory=True)


def _value(general: _General | None, usual: Any, spec: RLJobSpec) -> Any:
    found = usual.value(spec) if isinstance(usual, Computed) else usual
    return found if general is None else general.value(spec, found)


def computed_words(model: type[BaseModel], name: str) -> str:
    """A default that no value says, in words; empty where there is none."""
    field = (model, name)
    its = {type: each for type, each in BUILT_IN.items() if field in each.defaults}
    if field not in _GENERAL and not its:
        return default_in_words(model, name)
    said = {type: _said(each.defaults[field]) for type, each in its.items()}
    for type, each in its.items():
        if any(parameter.annotation is model for parameter in each.parameters.model_fields.values()):
            return said[type]  # no other algorithm has it in a manifest
    others = "; ".join(f"{type}: {words}" for type, words in said.items())
    usual = f"{_said(_usual(field))} ({others})" if others else _said(_usual(field))
    return _GENERAL[field].words.format(usual) if field in _GENERAL else usual


def _said(usual: Any) -> str:
    return usual.words if isinstance(usual, Computed) else str(plain_number(usual))


def default_words(model: type[BaseModel], name: str, shown: Callable[[Any], str]) -> str:
    """A default for people: in words, or its value as ``shown`` writes it; ``unset`` where there is none."""
    value = default_of(model, name)
    return computed_words(model, name) or ("unset" if value is PydanticUndefined else shown(value))


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
