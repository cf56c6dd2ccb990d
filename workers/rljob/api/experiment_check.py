"""From an experiment's manifest to an `Experiment`, or to every problem with it."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from rljob.api.document import in_one_line
from rljob.api.environment import judged_in
from rljob.api.experiment import (
    MOST_TRIALS,
    Distribution,
    GridSearch,
    PopulationSpec,
    PruneSpec,
    RLExperiment,
    RLExperimentSpec,
    SearchSpec,
)
from rljob.api.experiment_trials import Experiment, identity, settings_there_are, takes_integer
from rljob.api.job import API_VERSION, KIND, Metadata, RLJob
from rljob.api.live import live_values, with_live
from rljob.api.load import given, parse_job
from rljob.api.overrides import segments_of
from rljob.api.problems import ABSENT, ManifestError, Problem
from rljob.api.rules import transition_problems
from rljob.api.structure import structural_problems

_PARAMETERS = "spec.search.parameters"
_MOST_RUNGS = 100
_ONCE = "once; a repeat would use the same seed. Use seeds to play each setting several times"
_OF_THE_EXPERIMENT = {
    "suspend": "the experiment starts and stops its runs",
    "ttlSecondsAfterFinished": "a run is judged after its end, and goes with its experiment",
    "successPolicy.rawFrames": "budget.rawFrames and prune say how many a run plays",
}
"""Fields of the RLJob that the experiment sets, and why a search may not."""


def parse_experiment(document: Mapping[str, Any]) -> Experiment:
    """Check an experiment, its template, and the RLJob of every trial. Raises ManifestError with the problems.

    The template is checked as a manifest of its own would be, and each trial with its settings as if by ``--set``.
    """
    written = _with_plain_paths(_with_plain_paths(given(document)), "population")
    spec = written.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(template, Mapping) or not template.get("spec"):
        raise ManifestError([Problem("spec.template.spec", ABSENT, "required: the spec of an RLJob for the runs")])
    job, problems = _template(template["spec"])
    experiment, found = _structure(written)
    problems = [*found, *problems]
    if job is None or experiment is None or problems:
        raise ManifestError(problems)
    checked = experiment.spec.model_copy(
        update={"template": experiment.spec.template.model_copy(update={"spec": job.spec})}
    )
    frames = checked.budget.raw_frames or job.spec.success_policy.raw_frames
    checked = checked.model_copy(update={"budget": checked.budget.model_copy(update={"raw_frames": frames})})
    problems = list(_broken(checked, job))
    if problems:
        raise ManifestError(problems)
    whole = Experiment(experiment.metadata.name, checked, written)
    problems = [*_names(whole)] or [*_trials(whole), *_enough_settings(whole)]
    if problems:
        raise ManifestError(problems)
    return whole


def _with_plain_paths(written: dict[str, Any], part: str = "search") -> dict[str, Any]:
    """The manifest with the paths of its search without ``spec.``, so that one field has one name. Raises ManifestError where one
    stands there twice."""
    spec = written.get("spec")
    search = spec.get(part) if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(search, Mapping):
        return written
    found, listed = dict(search), search.get("list")
    for name in {"parameters", "initial"} & found.keys():
        found[name] = _plain(search[name], f"spec.{part}.{name}")
    if isinstance(listed, list):
        found["list"] = [_plain(each, f"spec.search.list[{at}]") for at, each in enumerate(listed)]
    return {**written, "spec": {**spec, part: found}}


def _plain(settings: Any, place: str) -> Any:
    if not isinstance(settings, Mapping):
        return settings
    found = {path.removeprefix("spec."): value for path, value in settings.items()}
    if len(found) < len(settings):
        twice = [path for path in settings if path.startswith("spec.") and path.removeprefix("spec.") in settings]
        raise ManifestError([Problem(place, twice[0], "allowed: each field once; it is also there without spec.")])
    return found


def _template(spec: Any) -> tuple[RLJob | None, list[Problem]]:
    """The template as a job in force, and what is wrong with it, at its places in the experiment."""
    job = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "template"}, "spec": spec}
    try:
        return parse_job(job), []
    except ManifestError as error:
        return None, [Problem(f"spec.template.{each.path}", each.value, each.message) for each in error.problems]


def _structure(written: Mapping[str, Any]) -> tuple[RLExperiment | None, list[Problem]]:
    """The experiment with a template that says nothing, in the place of one that was checked with its preset."""
    template = {**written["spec"]["template"], "spec": {"environment": {"id": "template"}}}
    document = {**written, "spec": {**written["spec"], "template": template}}
    try:
        return RLExperiment.model_validate(document, by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, structural_problems(error, RLExperiment)[0]


def _found(*rows: tuple[bool, str, Any, str]) -> list[Problem]:
    """The problems among (whether it is one, its path, the value there, what would be right)."""
    return [Problem(path, value, message) for wrong, path, value, message in rows if wrong]


def _broken(spec: RLExperimentSpec, job: RLJob) -> Iterator[Problem]:
    """What fields allow by themselves and is impossible together."""
    frames, kept = spec.budget.raw_frames, job.spec.ttl_seconds_after_finished
    yield from _found(
        (
            frames is None,
            "spec.budget.rawFrames",
            ABSENT,
            "required: raw frames of each run, as the template has no successPolicy.rawFrames",
        ),
        (
            job.spec.suspend,
            "spec.template.spec.suspend",
            True,
            f"allowed: false; {_OF_THE_EXPERIMENT['suspend']}",
        ),
        (
            kept is not None,
            "spec.template.spec.ttlSecondsAfterFinished",
            kept,
            f"allowed: unset; {_OF_THE_EXPERIMENT['ttlSecondsAfterFinished']}",
        ),
    )
    if spec.prune is not None:
        yield from _prune(spec, spec.prune, math.inf if frames is None else frames)
    if spec.search is not None:
        yield from _search(spec.search, "seed" if spec.seeds > 1 else "")
    if spec.population is not None:
        yield from _population(spec, spec.population, job, math.inf if frames is None else frames)


def _population(spec: RLExperimentSpec, population: PopulationSpec, job: RLJob, frames: float) -> Iterator[Problem]:
    """``frames``: the budget of a member."""
    place, first = "spec.population", population.burn_in_raw_frames or population.ready_raw_frames
    name = "burnInRawFrames" if population.burn_in_raw_frames is not None else "readyRawFrames"
    fewer = (
        f"allowed: less than the {frames:,} raw frames of budget.rawFrames; no member would be judged before its end"
    )
    yield from _found(
        (spec.search is not None, "spec.search", ABSENT, "allowed: not beside population, which draws settings itself"),
        (spec.prune is not None, "spec.prune", ABSENT, "allowed: not beside population, whose members never end early"),
        (
            spec.seeds > 1,
            "spec.seeds",
            spec.seeds,
            "allowed with population: 1; another population.seed is another one",
        ),
        (first >= frames, f"{place}.{name}", first, fewer),
        (
            math.inf > frames >= first + _MOST_RUNGS * population.ready_raw_frames,
            f"{place}.readyRawFrames",
            population.ready_raw_frames,
            f"allowed: more; a member is judged at most {_MOST_RUNGS} times",
        ),
    )
    live = live_values(job.spec)
    for path, from_ in population.parameters.items():
        at, words = f"{place}.parameters[{path}]", "allowed: a field that a running learner follows"
        changed = job.model_copy(update={"spec": with_live(job.spec, {path: live[path] + 1})}) if path in live else job
        yield from _found((path not in live, at, path, f"{words}: {', '.join(live)}"))
        yield from (Problem(at, path, each.message) for each in transition_problems(job, changed))
        yield from _distribution(path, from_, None, at)
    for path, from_ in population.initial.items():
        bounded = path in population.parameters and population.parameters[path].values is None
        at, words = f"{place}.initial[{path}]", "allowed: a path that parameters has, with bounds"
        yield from _found((not bounded, at, path, words))
        yield from _distribution(path, from_, None, at)


def _prune(spec: RLExperimentSpec, prune: PruneSpec, frames: float) -> Iterator[Problem]:
    """``frames``: the budget of a run."""
    first = prune.halving.first_raw_frames if prune.halving is not None else 0
    after = prune.median.after_raw_frames if prune.median is not None else 0
    fewer = f"allowed: less than the {frames:,} raw frames of budget.rawFrames; nothing would be pruned"
    alone = "allowed: only with search; seeds of one setting are not pruned against each other"
    yield from _one_of("spec.prune", {"halving": prune.halving, "median": prune.median})
    yield from _found(
        (spec.search is None, "spec.prune", ABSENT, alone),
        (first >= frames, "spec.prune.halving.firstRawFrames", first, fewer),
        (after >= frames, "spec.prune.median.afterRawFrames", after, fewer),
        (
            bool(after) and math.inf > frames >= (_MOST_RUNGS + 1) * after,
            "spec.prune.median.afterRawFrames",
            after,
            f"allowed: {frames // _MOST_RUNGS:,} or more; a run stops to be judged at most {_MOST_RUNGS} times",
        ),
    )


def _one_of(place: str, choices: Mapping[str, Any]) -> list[Problem]:
    chosen = [name for name, value in choices.items() if value is not None]
    *first, last = choices
    return _found((len(chosen) != 1, place, chosen or ABSENT, f"allowed: exactly one of {', '.join(first)} and {last}"))


def _search(search: SearchSpec, seed: str) -> Iterator[Problem]:
    listed, tpe = search.listed or [], search.tpe
    told = [identity(settings) for settings in listed]
    yield from _one_of("spec.search", {"random": search.random, "grid": search.grid, "list": search.listed, "tpe": tpe})
    if tpe is not None:
        fewer = f"allowed: fewer than the {tpe.trials} of trials, as all would be drawn otherwise"
        late = tpe.startup_trials >= tpe.trials
        yield from _found((late, "spec.search.tpe.startupTrials", tpe.startup_trials, fewer))
    yield from _found(
        (
            bool(listed and search.parameters),
            _PARAMETERS,
            ABSENT,
            "allowed: not beside list, which has the values of each trial itself",
        ),
        (
            not (listed or search.parameters),
            _PARAMETERS,
            ABSENT,
            "required: a field to vary, such as {algorithm.learningRate: {values: [1e-3, 3e-4]}}",
        ),
        *(
            (
                told[at] in told[:at],
                f"spec.search.list[{at}]",
                ABSENT,
                f"the same as list[{told.index(told[at])}]; allowed: each setting {_ONCE}",
            )
            for at in range(len(listed))
        ),
    )
    for path, from_ in search.parameters.items():
        yield from _path(path, f"{_PARAMETERS}[{path}]", seed)
        yield from _distribution(path, from_, search.grid, f"{_PARAMETERS}[{path}]")
    for at, settings in enumerate(listed):
        for path in settings:
            yield from _path(path, f"spec.search.list[{at}]", seed)


def _path(path: str, place: str, seed: str) -> list[Problem]:
    try:
        segments = segments_of(path)
    except ValueError:
        return [Problem(place, path, "allowed: the path of a field below spec, such as algorithm.learningRate")]
    reasons = _OF_THE_EXPERIMENT | ({seed: "seeds says which"} if seed else {})
    return _found(
        (segments[0] != "spec", place, path, "allowed: a field below spec"),
        (path in reasons, place, path, f"allowed: another field; {reasons.get(path)}"),
    )


def _distribution(path: str, from_: Distribution, grid: GridSearch | None, place: str) -> Iterator[Problem]:
    values = from_.values or []
    told = [*map(identity, values)]
    twice = [value for at, value in enumerate(values) if told[at] in told[:at]] if grid is not None else []
    numbers = "allowed in a grid: values; numbers between bounds are drawn with random"
    once = f"allowed in a grid: each value {_ONCE}"
    kinds = {"logUniform": from_.log_uniform, "uniform": from_.uniform}
    yield from _one_of(place, {**kinds, "values": from_.values})
    yield from _found(
        (grid is not None and not values, place, ABSENT, numbers),
        (bool(twice), f"{place}.values", next(iter(twice), None), once),
    )
    for kind, bounds in kinds.items():
        if bounds is None:
            continue
        least, most = bounds.min, bounds.max
        logarithm = kind == "logUniform" and least <= 0
        whole = takes_integer(path) and (most // 1) < -(-least // 1)
        between = f"no whole number lies between {least:g} and {most:g}"
        positive = "allowed: above 0, which has no logarithm; uniform takes 0"
        yield from _found(
            (least >= most, f"{place}.{kind}.max", most, f"allowed: more than min, which is {least:g}"),
            (least < most and logarithm, f"{place}.{kind}.min", least, positive),
            (least < most and not logarithm and whole, f"{place}.{kind}", ABSENT, between),
        )


def _names(experiment: Experiment) -> Iterator[Problem]:
    longest = experiment.run_name(experiment.trials - 1, experiment.spec.seeds)
    try:
        Metadata(name=longest)
    except ValidationError:
        spare = 45 - (len(longest) - len(experiment.name))
        yield Problem(
            "metadata.name", experiment.name, f"allowed: up to {spare} characters; its runs are named like {longest}"
        )


def _judged_apart(played: Mapping[str, int]) -> Iterator[Problem]:
    """That the best trial can't be told where trials are judged in different environments, each told with its first trial."""
    if len(played) > 1:
        message = (
            "allowed: trials that are judged in one environment, since returns mean different things in another; where training "
            "alone is to differ, evaluator.environment of the template has all judged in one"
        )
        some = ", ".join(f"trial {trial} in {environment}" for environment, trial in [*played.items()][:2])
        yield Problem("spec.search", ABSENT, f"{message} ({some})")


def _enough_settings(experiment: Experiment) -> Iterator[Problem]:
    search = experiment.spec.search
    if experiment.drawing is None:
        return
    most = settings_there_are(experiment.drawing[1])
    named = "random" if search and search.random else "tpe"
    place = f"spec.search.{named}.trials" if search else "spec.population.size"
    message = f"allowed: up to {most:,}, as parameters have no more settings; each is tried {_ONCE}"
    yield from _found((experiment.trials > most, place, experiment.trials, message))


def _trials(experiment: Experiment) -> Iterator[Problem]:
    """What is wrong with the first trial that makes no valid job, and how many are like it."""
    if experiment.trials > MOST_TRIALS:
        message = f"allowed: up to {MOST_TRIALS:,} trials; these are {experiment.trials:,} combinations"
        yield Problem("spec.search", ABSENT, message)
        return
    wrong: dict[int, ManifestError] = {}
    played: dict[str, int] = {}
    for trial in range(experiment.trials):
        try:
            job = experiment.job(trial)
        except ManifestError as error:
            wrong[trial] = error
            if experiment.refused:  # no more are drawn
                break
            continue
        judged = judged_in(job.spec.model_dump(by_alias=True, include={"environment", "evaluator"})).items()
        played.setdefault(in_one_line({part: value for part, value in judged if value not in (None, {})}), trial)
    if not wrong:
        yield from _judged_apart(played)
        return
    trial, first = next(iter(wrong.items()))
    search = experiment.spec.search
    drawn = _PARAMETERS if search is not None else "spec.population.parameters"
    place = f"spec.search.list[{trial}]" if search is not None and search.listed is not None else drawn
    counted = f"in trial {trial}; {len(wrong)} of {experiment.trials} trials are no valid job"
    if experiment.refused:
        counted = f"{len(experiment.refused)} draws make no valid job, and {trial} of {experiment.trials} trials do"
    varied = experiment.drawing[1] if experiment.drawing is not None else experiment.settings(trial)
    for each in first.problems:
        paths = [p for p in varied if each.path == p or each.path.startswith(f"spec.{p}")]
        where = f"{place}[{paths[0]}]" if paths else place
        said = "" if each.path in paths else f"{each.path}: "
        yield Problem(
            where,
            each.value,
            f"{said}{each.message} ({counted})",
        )
