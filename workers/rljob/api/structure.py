"""From pydantic's errors to problems in the words of the manifest: paths by name, the nearest known field, what is
allowed; and whether the parameters in ``spec.algorithm`` are those of its algorithm, which takes less than all together do."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.algorithm import CUSTOM, SHARED, AlgorithmSpec
from rljob.api.document import in_one_line
from rljob.api.fields import OfParameters, TypedPlace, first_sentence, in_words, literal_values, mark_in, typed_place
from rljob.api.job import RLJob
from rljob.api.problems import ABSENT, Location, Problem, folded, nearest, path_of, unknown_name
from rljob.api.rules.algorithm import an_environment_or_a_preset
from rljob.api.types import ALLOWED

CALLED_HERE: Final[Mapping[str, str]] = {
    name: path
    for path, names in {
        "environment.id": "env env_id env_name environment_id environment.name",
        "environment.kwargs": "env_kwargs env_config",
        "environment.frameStack": "env_framestack num_stack",
        "environment.atari.frameSkip": "env_frameskip frame_skip",
        "actors.replicas": "workers num_workers num_env_runners num_actors",
        "actors.envsPerActor": "n_envs num_envs num_envs_per_worker num_envs_per_env_runner actors.environments actors.envs",
        "learner.accelerator.count": "gpu gpus device num_gpus num_gpus_per_learner",
        "replay.capacity": "buffer_size replay_buffer_size",
        "replay.rateLimiter.minSize": "learning_starts",
        "replay.rateLimiter.samplesPerInsert": "train_freq gradient_steps training_intensity",
        "evaluator.episodes": "n_eval_episodes evaluation_duration",
        "evaluator.intervalSeconds": "eval_freq evaluation_interval",
        "successPolicy.rawFrames": "total_timesteps timesteps train_for_env_steps max_steps num_frames max_frames "
        "total_frames",
        "successPolicy": "stop stop_criteria termination",
        "successPolicy.targetReturn.value": "reward_threshold stop_reward",
        "activeDeadlineSeconds": "timeout timeout_seconds max_seconds",
        "seed": "seed random_seed",
        "algorithm": "model policy trainer training",
        "algorithm.type": "algo algorithm.name",
        "algorithm.learningRate": "lr policy_lr",
        "algorithm.gradientClipNorm": "max_grad_norm grad_clip",
        "algorithm.hiddenUnits": "net_arch fcnet_hiddens",
        "algorithm.unrollLength": "n_steps num_steps rollout rollout_length rollout_fragment_length",
        "algorithm.epochs": "n_epochs num_epochs update_epochs num_sgd_iter",
        "algorithm.minibatches": "num_minibatches num_batches_per_epoch",
        "algorithm.entropyCost": "ent_coef entropy_coeff exploration_loss_coeff",
        "algorithm.valueCost": "vf_coef vf_loss_coeff value_loss_coeff",
        "algorithm.normalizeObservations": "normalize_input norm_obs",
        "algorithm.normalizeReturns": "norm_reward",
        "algorithm.recurrent": "use_lstm use_rnn",
        "algorithm.targetUpdateTau": "tau",
        "algorithm.ppo.clipRange": "clip_coef clip_param ppo_clip_ratio",
        "algorithm.ppo.normalizeAdvantages": "norm_adv",
        "algorithm.sac.criticLearningRate": "q_lr",
        "algorithm.sac.initialTemperature": "alpha",
    }.items()
    for name in names.split()
}
"""A name elsewhere, or a section and a name -> the path below `spec`."""

MOVED: Final[Mapping[str, str]] = {
    "*.volumes": "*.podTemplate.spec.volumes",
    "*.volumeMounts": "*.podTemplate.spec.containers: [{name: worker, volumeMounts: [...]}]",
    "*.serviceAccountName": "*.podTemplate.spec.serviceAccountName",
    "*.affinity": "*.podTemplate.spec.affinity",
    "*.priorityClassName": "*.podTemplate.spec.priorityClassName",
    "*.runtimeClassName": "*.podTemplate.spec.runtimeClassName",
    "*.topologySpread": "*.podTemplate.spec.topologySpreadConstraints",
    "algorithm.*.seed": "seed",
    **{f"algorithm.*.{name}": f"algorithm.{name}" for name in SHARED},
    "replay.sampling": "nothing: the learner mirrors the store",
    "autoscaling.trimTimeConstantSeconds": "nothing: it is always 300",
    "autoscaling.tolerancePercent": "nothing: it is always 5",
    "autoscaling.behavior": "nothing: a decision adds as many again or 4, or takes away a fifth, 180 s after more was wanted",
    "autoscaling.missingMetrics": "nothing: figures older than 45 s count as missing, and the number is held",
    "autoscaling.samplePeriodSeconds": "nothing: it is always 15",
    "autoscaling.rateWindowSeconds": "nothing: it is always 60",
    "autoscaling.guards.minMarginalGainPercent": "nothing: it is always 10",
    "environment.maxFailuresPer10000Steps": "nothing: it is always 10",
    "actors.onEviction": "nothing: an actor that was taken away is replaced",
    "actors.drainSeconds": "nothing: it is always 25; a podTemplate may give a pod another terminationGracePeriodSeconds",
    "actors.startupWave": "nothing: it is always 32",
    "inference.maxWaitMilliseconds": "nothing: it is always 2",
    "inference.timeoutSeconds": "nothing: it is always 30",
    "checkpoint.onSuspend": "nothing: a suspension asks for a checkpoint, and again a minute after one that failed",
    "checkpoint.suspendTimeoutSeconds": "nothing: it is always 600",
    "failurePolicy.resetAfterSeconds": "nothing: it is always 3600",
    "failurePolicy.maxActorCrashLoopPercent": "nothing: it is always 50",
    "podCleanup": "nothing: all pods go after success; after a failure pods that ended by themselves stay for their logs",
    "monitoring.podMonitor": "nothing: the label rljob.dev/scrape: 'false' in podTemplate keeps a role's pods from being scraped",
}
"""A path below ``spec``, or a pattern of paths (``*`` is a role's section) -> the path to write instead, or "nothing" and the
reason."""


def moved_to(path: str) -> str:
    """What to write instead of the field at ``path`` below ``spec``, or why nothing; empty where there was never such a field."""
    instead = next((instead for pattern, instead in MOVED.items() if fnmatchcase(path, pattern)), "")
    if instead.startswith("nothing: "):
        return instead.removeprefix("nothing: ")
    return instead and f"write spec.{instead.replace('*', path.partition('.')[0])} instead"


_OF_A_PRESET: frozenset[Location] = frozenset(
    (
        ("spec",),
        ("spec", "environment"),
        ("spec", "environment", "id"),
    )
)
"""What every preset has: where no preset is named, one sentence asks for all that is missing of it; with an unknown preset
nothing of it is asked for."""


_CALLED_HERE: Mapping[tuple[Location, str], str] = {
    (place, name): f"; what others call {name} is algorithm: {{type: {algorithm}}} here"
    for place in (("spec", "algorithm"), ("spec", "algorithm", "type"))
    for algorithm, each in BUILT_IN.items()
    for name in each.elsewhere
}
"""The place of an algorithm, and its name elsewhere -> what to write."""
_BY_SPELLING = {folded(name): path for name, path in CALLED_HERE.items()}
_LONGEST_EXAMPLE = 60
_WORDS = {
    ALLOWED: "{allowed}",
    "value_error": "{error}",  # in the words of the check that raised it
    "assertion_error": "{error}",
    "bool_type": "allowed: true or false",
    "bool_parsing": "allowed: true or false",
    "string_unicode": "allowed: text that is valid Unicode",
    "list_type": "allowed: a list, such as [a, b]",
    "too_long": "allowed: at most {max_length} entries, here {actual_length}",
    "too_short": "allowed: a list of at least {min_length}",
}
"""What to say by pydantic's kind of error, with what that says of the value."""


def structural_problems(error: ValidationError, model: type[BaseModel] = RLJob) -> list[Problem]:
    """Pydantic's errors of a document that is a ``model`` as problems."""
    problems: list[Problem] = []
    items = error.errors(include_url=False)
    said = any(item["loc"] == ("spec", "preset") for item in items)  # a preset that is none is what has to be mended
    for item in items:
        location = tuple(part for part in item["loc"] if part != "[key]")
        kind, context, value = item["type"], item.get("ctx", {}), item["input"]
        match kind:
            case "default_factory_not_called":  # it follows from another field, whose value is wrong
                continue
            case "missing" if location in _OF_A_PRESET:
                if not said:
                    problems.append(Problem("spec", ABSENT, an_environment_or_a_preset.message))
                    said = True
                continue
            case "missing":
                value, message = ABSENT, f"required: {_purpose(model, location)}"
            case "extra_forbidden":
                instead = moved_to(path_of(location).removeprefix("spec."))
                place = typed_place(model, location[:-1])
                message = f"removed; {instead}" if instead else _unknown_field(str(location[-1]), place)
            case "literal_error":
                expected = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
                near = nearest(value, expected) if isinstance(value, str) and len(expected) > 1 else None
                message = f"allowed: {', '.join(expected)}" + (f"; did you mean {near!r}?" if near else "")
            case "model_type" | "dict_type" | "model_attributes_type":
                message = f"allowed: a mapping of fields{_such_as(typed_place(model, location), value)}"
            case _:
                known = {name: "more" if given is None else given for name, given in context.items()}
                message = _WORDS.get(kind, "allowed: something else ({msg})").format(msg=item["msg"], **known)
        hint = _CALLED_HERE.get((location, value if isinstance(value, str) else ""), "")
        problems.append(Problem(path_of(location), value, message + hint))
    return problems


def _unknown_field(name: str, place: TypedPlace | None) -> str:
    """That a section has no such field, and which one was likely meant: one of that name in a section below it comes first."""
    if place is None:
        return unknown_name(name, (), "field")
    if ":" in name:
        return "unknown field; a space belongs behind the colon that ends a field's name"
    known = place.field_names
    # What other libraries call a field.
    elsewhere = _BY_SPELLING.get(folded(f"{place.name}.{name}")) or _BY_SPELLING.get(folded(name), "")
    if elsewhere and folded(name) not in map(folded, known):
        field = elsewhere.rpartition(".")[2]
        return f"unknown field; that is {field if field in known else f'spec.{elsewhere}'!r} here"
    below = (
        f"{section}.{field}"
        for section, found in place.fields_below()
        for field in found.field_names
        if folded(field) == folded(name)
    )
    same = None if nearest(name, known, likeness=1.0) else next(below, None)
    if (
        same is None
        and place.owner is AlgorithmSpec
        and nearest(name, known) is None
        and (near := nearest(name, SHARED))
    ):
        same = f"spec.algorithm.{near}"
    return f"unknown field; did you mean {same!r}?" if same else unknown_name(name, known, "field")


def _such_as(place: TypedPlace | None, value: Any) -> str:
    """What to write in the place of a ``value`` that stands where a section is due: the field most likely meant with it."""
    if (
        place is None
        or not isinstance(value, str | int | float)
        or not (str(value).isprintable() and len(str(value)) <= _LONGEST_EXAMPLE)
    ):
        return ""
    fields = [(name, below.field) for name, below in place.fields_below() if below.field is not None]
    words = [name for name, field in fields if value in literal_values(field)]
    due = [
        name
        for name, field in fields
        if field.is_required() and not literal_values(field) and isinstance(value, str) == (field.annotation is str)
    ]
    others = [name for name, field in fields if type(value) is type(field.default) is not str]
    return "".join(f", such as {{{name}: {in_one_line(value)}}}" for name in [*words, *due, *others][:1])


def _purpose(model: type[BaseModel], location: Location) -> str:
    """What is missing at ``location``, and what is allowed there."""
    place = typed_place(model, location)
    if place is None or place.field is None:
        return "a value"
    words = literal_values(place.field)
    meaning = first_sentence(place.description).rstrip(".") or "a value"
    return f"{meaning}; allowed: {', '.join(words)}" if words else meaning


def without_nulls(document: dict[str, Any], model: type[BaseModel] = RLJob) -> dict[str, Any]:
    """A copy of a manifest without the nulls that count as not given.

    Those of known fields go, and those in maps of a known kind (labels, resources). The others stay for the checks: under
    an unknown name, where a misspelt field must be refused although it holds nothing; as an entry of a list; and inside
    what has no schema, a pod template, where a null removes a field of the generated pod.
    """
    return dict(_without(document, TypedPlace(model)))


def _without(value: Any, place: TypedPlace | None) -> Any:
    if isinstance(value, dict) and place is not None:
        below = {key: place.below(key) for key in value}
        return {
            key: _without(item, below[key]) for key, item in value.items() if item is not None or below[key] is None
        }
    if isinstance(value, list) and place is not None and place.is_list:
        return [_without(item, place.below(0)) for item in value]
    return value


def misfits(algorithm: AlgorithmSpec) -> list[Problem]:
    """What is wrong with the parameters. Of a Custom algorithm only where it is loaded can more be told than that what it shares
    with others does not stand with its own."""
    if algorithm.type == CUSTOM:
        own = algorithm.custom.parameters if algorithm.custom is not None else {}
        moved = {name: instead for name in own if (instead := MOVED.get(f"algorithm.*.{name}"))}
        place = "spec.algorithm.custom.parameters"
        return [
            Problem(f"{place}.{name}", own[name], f"not allowed here; write spec.{instead} instead")
            for name, instead in moved.items()
        ]
    kind = BUILT_IN[algorithm.type].parameters
    foreign = {alias: value for alias, value in algorithm.shared.items() if SHARED[alias] not in kind.model_fields}
    found = [not_with(algorithm.type, alias, value) for alias, value in foreign.items()]
    try:
        _ = algorithm.parameters
    except ValidationError as error:
        found += [
            Problem(f"spec.algorithm.{each.path}", each.value, f"{each.message}, with algorithm {algorithm.type}")
            for each in structural_problems(error, kind)
        ]
    return found


def not_with(algorithm: str, alias: str, value: Any) -> Problem:
    """That an algorithm has no such parameter in ``spec.algorithm``, and which built-in ones do."""
    mark = mark_in(AlgorithmSpec.model_fields[SHARED[alias]], OfParameters)
    assert mark is not None, "what is shared is made of parameter sets"
    having = f"{in_words([*mark.sets])} {'has' if len(mark.sets) == 1 else 'have'}"
    return Problem(f"spec.algorithm.{alias}", value, f"not allowed: {algorithm} has no such parameter; {having}")
