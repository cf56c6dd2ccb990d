"""From an experiment's manifest to an `Experiment`, or to every problem with it."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from rljob.api.document import in_one_line
from rljob.api.environment import judged_in
from rljob.api.experiment import (
    MOST_TRIALS,
    Distribution,
    Interval,
    PopulationSpec,
    PruneSpec,
    RLExperiment,
    RLExperimentSpec,
    SearchSpec,
)
from rljob.api.experiment_trials import Experiment, bounds, identity, settings_there_are, takes_integer
from rljob.api.job import API_VERSION, KIND, RLJob
from rljob.api.live import not_live
from rljob.api.load import given, parse_job
from rljob.api.problems import ABSENT, ManifestError, Problem, value_at
from rljob.api.rule import Rule, at_least, at_most
from rljob.api.rules import broken
from rljob.api.structure import structural_problems

_MOST_RUNGS: Final = 100
_ONCE: Final = "once; a repeat would use the same seed. Use seeds to play each setting several times"
_LONGEST_NAME: Final = 45


def parse_experiment(document: Mapping[str, Any]) -> Experiment:
    """Check an experiment, its template, and the RLJob of every trial. Raises ManifestError with the problems.

    The template is checked as a manifest of its own would be, and each trial with its settings as if by ``--set``.
    """
    written = given(document)
    template = value_at(written, "spec.template.spec")
    if not isinstance(template, Mapping) or not template:
        raise ManifestError([Problem("spec.template.spec", ABSENT, "required: the spec of an RLJob for the runs")])
    experiment, job = _structure(written), _job_of(template)
    budget = experiment.spec.budget
    frames = budget.raw_frames or job.spec.success_policy.raw_frames
    in_force = {
        "template": experiment.spec.template.model_copy(update={"spec": job.spec}),
        "budget": budget.model_copy(update={"raw_frames": frames}),
    }
    spec = experiment.spec.model_copy(update=in_force)
    members = spec.population.parameters if spec.population is not None else {}
    fixed = {path: why for path in members if (why := not_live(job.spec, path))}
    _refuse(
        [
            *(problem for *_, problem in broken(_RULES, spec, "spec")),
            *(Problem(f"spec.population.parameters[{path}]", path, why) for path, why in fixed.items()),
        ]
    )
    whole = Experiment(experiment.metadata.name, spec, written)
    _refuse(_names(whole))
    _refuse([*_trials(whole), *_enough_settings(whole)])
    return whole


def _refuse(problems: Iterable[Problem]) -> None:
    if found := list(problems):
        raise ManifestError(found)


def _structure(written: Mapping[str, Any]) -> RLExperiment:
    """The experiment with a template that says nothing, in the place of one that is checked with its preset."""
    template = {**written["spec"]["template"], "spec": {"environment": {"id": "template"}}}
    try:
        document = {**written, "spec": {**written["spec"], "template": template}}
        return RLExperiment.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise ManifestError(structural_problems(error, RLExperiment)) from None


def _job_of(template: Mapping[str, Any]) -> RLJob:
    """The template as a job in force."""
    try:
        return parse_job({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "template"}, "spec": template})
    except ManifestError as error:
        found = [Problem(f"spec.template.{each.path}", each.value, each.message) for each in error.problems]
        raise ManifestError(found) from None


def _one_of(at: type[BaseModel], *fields: str) -> Rule:
    *first, last = (at.model_fields[name].alias or name for name in fields)
    return Rule(
        f"one_of_{at.__name__}",
        at,
        "",
        lambda it: sum(getattr(it, name) is not None for name in fields) == 1,
        f"allowed: exactly one of {', '.join(first)} and {last}",
    )


def _set_by(search: SearchSpec) -> set[str]:
    """The paths below ``spec`` that trials set."""
    return {path.removeprefix("spec.") for each in (search.parameters, *(search.listed or ())) for path in each}


def _taken(search: SearchSpec) -> list[str]:
    """Those that trials may not set."""
    own = {"suspend", "ttlSecondsAfterFinished", "successPolicy.rawFrames"}
    return sorted(path for path in _set_by(search) if path in own or path.startswith("metadata."))


def _twice(values: Iterable[Any]) -> list[Any]:
    """Values that are there before."""
    told = [*map(identity, values)]
    return [json.loads(each) for at, each in enumerate(told) if each in told[:at]]


def _wrong(is_wrong: Callable[[str, Distribution], object]) -> Callable[[Any], str]:
    """The paths of parameters of which something ``is_wrong``, as a text."""
    return lambda it: ", ".join(path for path, each in it.parameters.items() if is_wrong(path, each))


def _without_whole(path: str, from_: Distribution) -> bool:
    if not takes_integer(path) or not (from_.uniform or from_.log_uniform):
        return False
    low, high = bounds(path, from_)
    return low > high


def _first_judged(population: PopulationSpec) -> int:
    return population.burn_in_raw_frames or population.ready_raw_frames


def _is_alone(field: str, spec: RLExperimentSpec) -> bool:
    return spec.population is None or getattr(spec, field) in (None, 1)


_RULES: Final = (
    # of all experiments
    Rule(
        "a_budget",
        RLExperimentSpec,
        "budget.rawFrames",
        lambda it: it.budget.raw_frames is not None,
        "required: raw frames of each run, as the template has no successPolicy.rawFrames",
    ),
    Rule(
        "a_template_that_runs",
        RLExperimentSpec,
        "template.spec.suspend",
        lambda it: not it.template.spec.suspend,
        "allowed: false; the experiment starts and stops its runs",
    ),
    Rule(
        "runs_that_stay",
        RLExperimentSpec,
        "template.spec.ttlSecondsAfterFinished",
        lambda it: it.template.spec.ttl_seconds_after_finished is None,
        "allowed: unset; a run is judged after its end, and goes with its experiment",
    ),
    Rule(
        "a_seed_for_each",
        RLExperimentSpec,
        "search",
        lambda it: it.seeds == 1 or it.search is None or "seed" not in _set_by(it.search),
        "allowed: other fields than seed; seeds says which",
    ),
    # of a search
    _one_of(SearchSpec, "random", "grid", "listed", "tpe"),
    _one_of(Distribution, "log_uniform", "uniform", "values"),
    Rule(
        "an_interval", Interval, "max", lambda it: it.min < it.max, "allowed: more than min", lambda it: f"{it.min:g}"
    ),
    Rule(
        "a_logarithm",
        Distribution,
        "logUniform.min",
        lambda it: it.log_uniform is None or it.log_uniform.min > 0,
        "allowed: above 0, which has no logarithm; uniform takes 0",
    ),
    at_most(
        "some_suggestions",
        SearchSpec,
        "tpe.startupTrials",
        "one less than trials",
        "all would be drawn otherwise",
        lambda it: it.tpe.trials - 1,
    ),
    Rule(
        "settings_written_once",
        SearchSpec,
        "parameters",
        lambda it: not (it.listed and it.parameters),
        "allowed: not beside list, which has the values of each trial itself",
    ),
    Rule(
        "something_to_vary",
        SearchSpec,
        "parameters",
        lambda it: bool(it.listed or it.parameters),
        "required: a field to vary, such as {algorithm.learningRate: {values: [1e-3, 3e-4]}}",
    ),
    Rule(
        "fields_of_a_job",
        SearchSpec,
        "",
        lambda it: not _taken(it),
        "allowed: fields below spec; the experiment starts and stops its runs, keeps them until they are judged, and with "
        "budget.rawFrames and prune says how many raw frames each plays",
        lambda it: f"not {', '.join(_taken(it))}",
    ),
    Rule(
        "different_settings",
        SearchSpec,
        "list",
        lambda it: not _twice(it.listed or ()),
        f"allowed: each setting {_ONCE}",
        lambda it: f"not {in_one_line(_twice(it.listed))}",
    ),
    Rule(
        "values_in_a_grid",
        SearchSpec,
        "parameters",
        lambda it: it.grid is None or not _wrong(lambda _, each: not each.values)(it),
        "allowed in a grid: values; numbers between bounds are drawn with random",
        _wrong(lambda _, each: not each.values),
    ),
    Rule(
        "different_values_in_a_grid",
        SearchSpec,
        "parameters",
        lambda it: it.grid is None or not _wrong(lambda _, each: _twice(each.values or ()))(it),
        f"allowed in a grid: each value {_ONCE}",
        _wrong(lambda _, each: _twice(each.values or ())),
    ),
    *(
        Rule(
            f"whole_numbers_of_{at.__name__}",
            at,
            "parameters",
            lambda it: not _wrong(_without_whole)(it),
            "allowed: bounds with a whole number between them, which these fields take",
            _wrong(_without_whole),
        )
        for at in (SearchSpec, PopulationSpec)
    ),
    # of the moments at which runs are judged
    _one_of(PruneSpec, "halving", "median"),
    Rule(
        "something_to_prune",
        RLExperimentSpec,
        "prune",
        lambda it: it.prune is None or it.search is not None or it.population is not None,
        "allowed: only with search; seeds of one setting are not pruned against each other",
    ),
    *(
        at_most(
            f"a_judgement_before_the_end_by_{field}",
            RLExperimentSpec,
            field,
            "one less than budget.rawFrames",
            "no run would be judged before its end",
            lambda it: (it.budget.raw_frames or math.inf) - 1,
        )
        for field in (
            "prune.halving.firstRawFrames",
            "prune.median.afterRawFrames",
            "population.readyRawFrames",
            "population.burnInRawFrames",
        )
    ),
    at_least(
        "not_too_many_judgements",
        RLExperimentSpec,
        "prune.median.afterRawFrames",
        f"budget.rawFrames / {_MOST_RUNGS}",
        f"a run stops to be judged at most {_MOST_RUNGS} times",
        lambda it: math.ceil((it.budget.raw_frames or 0) / _MOST_RUNGS),
    ),
    at_least(
        "not_too_many_steps",
        RLExperimentSpec,
        "population.readyRawFrames",
        f"the raw frames after burnInRawFrames / {_MOST_RUNGS}",
        f"a member is judged at most {_MOST_RUNGS} times",
        lambda it: math.ceil(((it.budget.raw_frames or 0) - _first_judged(it.population)) / _MOST_RUNGS),
    ),
    # of a population
    *(
        Rule(
            f"no_{field}_beside_a_population",
            RLExperimentSpec,
            field,
            partial(_is_alone, field),
            f"allowed: not beside population, {why}",
        )
        for field, why in (
            ("search", "which draws settings itself"),
            ("prune", "whose members never end early"),
            ("seeds", "where another population.seed makes another one"),
        )
    ),
    Rule(
        "first_values_between_bounds",
        PopulationSpec,
        "initial",
        lambda it: all(path in it.parameters and it.parameters[path].values is None for path in it.initial),
        "allowed: paths that parameters has, with bounds",
    ),
)


def _names(experiment: Experiment) -> Iterator[Problem]:
    longest = experiment.run_name(experiment.trials - 1, experiment.spec.seeds)
    spare = _LONGEST_NAME - (len(longest) - len(experiment.name))
    if len(experiment.name) > spare:
        message = f"allowed: up to {spare} characters; its runs are named like {longest}"
        yield Problem("metadata.name", experiment.name, message)


def _enough_settings(experiment: Experiment) -> Iterator[Problem]:
    search, drawing = experiment.spec.search, experiment.drawing
    most = math.inf if drawing is None else settings_there_are(drawing[1])
    if experiment.trials > most:
        place = f"search.{'random' if search.random else 'tpe'}.trials" if search else "population.size"
        message = f"allowed: up to {most:,}, as parameters have no more settings; each is tried {_ONCE}"
        yield Problem(f"spec.{place}", experiment.trials, message)


def _trials(experiment: Experiment) -> Iterator[Problem]:
    """What is wrong with the first trial that makes no valid job, and how many are like it; that the best trial can't be told
    where trials are judged in different environments, each told with its first trial."""
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
    if wrong:
        yield from _wrong_trials(experiment, wrong)
    elif len(played) > 1:
        some = ", ".join(f"trial {trial} in {environment}" for environment, trial in [*played.items()][:2])
        message = (
            "allowed: trials that are judged in one environment, since returns mean different things in another; where training "
            f"alone is to differ, evaluator.environment of the template has all judged in one ({some})"
        )
        yield Problem("spec.search", ABSENT, message)


def _wrong_trials(experiment: Experiment, wrong: Mapping[int, ManifestError]) -> Iterator[Problem]:
    trial, first = next(iter(wrong.items()))
    search, drawing = experiment.spec.search, experiment.drawing
    drawn = f"spec.{'population' if search is None else 'search'}.parameters"
    place = f"spec.search.list[{trial}]" if search is not None and search.listed is not None else drawn
    counted = f"in trial {trial}; {len(wrong)} of {experiment.trials} trials are no valid job"
    if experiment.refused:
        counted = f"{len(experiment.refused)} draws make no valid job, and {trial} of {experiment.trials} trials do"
    varied = drawing[1] if drawing is not None else experiment.settings(trial)
    for each in first.problems:
        paths = [path for path in varied if each.path.removeprefix("spec.").startswith(path.removeprefix("spec."))]
        where = f"{place}[{paths[0]}]" if paths else place
        yield Problem(where, each.value, f"{each.path}: {each.message} ({counted})")
