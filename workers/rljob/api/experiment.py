"""RLExperiment, group ``rljob.dev``, version ``v1alpha1``: several runs of one job, compared, of which the best is sought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.job import Metadata, RLJob, RLJobSpec
from rljob.api.types import APIModel, Flag, Integer, JSONObject, Real, Seconds, Text

EXPERIMENT_KIND = "RLExperiment"
MOST_TRIALS = 1000
"""A status that lists them all would be too large, and a person could not read it."""


class TemplateMetadata(APIModel):
    """What every run of the experiment has beside its name."""

    labels: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Labels of every run; kueue.x-k8s.io/queue-name names a queue."""
    annotations: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Notes on every run."""


class JobTemplate(APIModel):
    """The RLJob that is run again and again."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of every run."""
    spec: RLJobSpec
    """The spec of an RLJob: ``kubectl explain rljob.spec`` tells its fields. What differs between runs is set in a copy of it."""


class Interval(APIModel):
    """Numbers from min to max."""

    min: Annotated[float, Real()]
    """The least that is drawn."""
    max: Annotated[float, Real()]
    """The most that is drawn."""


class Distribution(APIModel):
    """Where the values of one parameter come from; exactly one."""

    log_uniform: Interval | None = None
    """Numbers whose logarithm is equally likely everywhere between the bounds: for rates and costs."""
    uniform: Interval | None = None
    """Numbers that are equally likely between the bounds; whole ones where the field takes an integer."""
    values: list[Any] | None = Field(default=None, min_length=1, max_length=1000)
    """These, each as likely as the others."""


class RandomSearch(APIModel):
    """Trials that are drawn, each with settings of its own."""

    trials: Annotated[int, Integer(1, MOST_TRIALS)]
    """How many settings are tried."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 0
    """Seed of the draws: the same seed draws the same trials, on every machine."""


class GridSearch(APIModel):
    """Every combination of the values of all parameters."""


class TPESearch(APIModel):
    """Trials that are suggested by the scores of those before them; needs the extra [optuna]."""

    trials: Annotated[int, Integer(1, MOST_TRIALS)]
    """How many settings are tried."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 0
    """Seed of the draws: the same seed and the same scores suggest the same trials."""
    startup_trials: Annotated[int, Integer(1, MOST_TRIALS)] = 10
    """Until so many trials have a score, settings are drawn as by random."""


class SearchSpec(APIModel):
    """Which settings are tried: exactly one of random, grid, list and tpe."""

    random: RandomSearch | None = None
    """Settings that are drawn from parameters."""
    grid: GridSearch | None = None
    """All combinations of parameters, whose values are lists then."""
    listed: list[Annotated[dict[str, Any], JSONObject()]] | None = Field(
        default=None, alias="list", min_length=1, max_length=MOST_TRIALS
    )
    """Settings that are written out, one mapping a trial, such as {algorithm.learningRate: 1e-3}."""
    tpe: TPESearch | None = None
    """Settings that a tree-structured Parzen estimator suggests, from parameters."""
    parameters: dict[Annotated[str, Text(253, "the path of a field")], Distribution] = Field(
        default_factory=dict, max_length=64
    )
    """A field of the RLJob, by its path as ``--set`` has it, and where its values come from."""


class Halving(APIModel):
    """Asynchronous successive halving: after each rung, the best of factor go on with factor times as many raw frames."""

    first_raw_frames: Annotated[int, Integer(1)]
    """Raw frames until a trial is first judged."""
    factor: Annotated[int, Integer(2, 100)] = 3
    """One in so many goes on from each rung, and plays until it has so many times the raw frames."""


class MedianRule(APIModel):
    """A trial ends whose score is below the median of the others' at the same raw frames."""

    after_raw_frames: Annotated[int, Integer(1)]
    """Raw frames until a trial is first judged; it is judged again each time it has played as many more."""
    min_trials: Annotated[int, Integer(1, MOST_TRIALS)] = 5
    """Scores of other trials at those raw frames that a median needs; with fewer, the trial goes on."""


class PruneSpec(APIModel):
    """Which trials end before their budget: exactly one rule."""

    halving: Halving | None = None
    """Successive halving: one in factor goes on from each rung."""
    median: MedianRule | None = None
    """The median of the others."""


class ExploitSpec(APIModel):
    """Which member of a population copies another, and which one."""

    truncation_percent: Annotated[int, Integer(1, 50)] = 25
    """So many of a hundred members, the lowest by their newest scores, may each copy one of as many highest; at least one."""
    min_gap_standard_errors: Annotated[float, Real(0)] = 2.0
    """How much higher the other's score has to be, in standard errors of the difference."""


class ExploreSpec(APIModel):
    """How the settings of a member that copies another differ from the other's."""

    factor: Annotated[float, Real(1, 10, above=True)] = 1.2
    """A number is multiplied or divided by it, each as likely, within the bounds of its parameter; of listed values it becomes
    a neighbour."""
    probability: Annotated[float, Real(0, 1)] = 0.33
    """How likely that is for each parameter."""
    resample: Annotated[float, Real(0, 1)] = 0.05
    """How likely a parameter is drawn again instead."""


class PopulationSpec(APIModel):
    """Population-based training: members that train at the same time copy weights and settings of better ones, and try others."""

    size: Annotated[int, Integer(2, 100)]
    """Members; each is a run."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 0
    """Seed of the draws: members begin with the settings that search.random draws with the same seed."""
    burn_in_raw_frames: Annotated[int, Integer(1)] | None = None
    """Raw frames until a member is first judged; readyRawFrames unless given."""
    ready_raw_frames: Annotated[int, Integer(1)]
    """Raw frames from one judgement of a member to the next."""
    exploit: ExploitSpec = Field(default_factory=ExploitSpec)
    """Which members copy another one, and how clear the difference has to be."""
    explore: ExploreSpec = Field(default_factory=ExploreSpec)
    """How the settings that come with a copy are varied."""
    reference: Flag = False
    """True: member 0 copies nobody and keeps its settings, so that the others can be measured by it."""
    parameters: dict[Annotated[str, Text(253, "the path of a field")], Distribution] = Field(
        min_length=1, max_length=64
    )
    """A live field of the RLJob, by its path as ``--set`` has it, and where its values come from."""
    initial: dict[Annotated[str, Text(253, "the path of a field")], Distribution] = Field(
        default_factory=dict, max_length=64
    )
    """Where members begin, of parameters that are to begin elsewhere than anywhere between their bounds."""


class ExperimentBudget(APIModel):
    """What the experiment may cost."""

    raw_frames: Annotated[int, Integer(1)] | None = None
    """Raw frames of each run that is not ended before; successPolicy.rawFrames of the template unless given."""
    seconds: Seconds | None = None
    """Time for the whole experiment, in which its controller runs; then the best until then is judged."""


class RLExperimentSpec(APIModel):
    """What is tried, and what it may cost."""

    suspend: Flag = False
    """True, on a cluster: its runs save themselves and stop, and nothing is decided; on one machine `rljob stop` does that."""
    template: JobTemplate
    """The RLJob that is run."""
    seeds: Annotated[int, Integer(1, 100)] = 1
    """Runs of each setting, with the seed of the template and those above it. With prune, a setting gets its further seeds once
    the first has played the whole budget."""
    search: SearchSpec | None = None
    """Which settings are tried; without it the template alone, with as many seeds as asked for."""
    prune: PruneSpec | None = None
    """Which trials end early; unset plays each to its end."""
    population: PopulationSpec | None = None
    """Members that copy and vary one another while they train, in place of search and prune."""
    budget: ExperimentBudget = Field(default_factory=ExperimentBudget)
    """What the experiment may cost."""
    parallelism: Annotated[int, Integer(1, MOST_TRIALS)] = 1
    """Runs at the same time."""
    max_failed_trials: Annotated[int, Integer(0, MOST_TRIALS)] = 3
    """The experiment fails with one failed run more than this."""


class RLExperiment(APIModel):
    """Several runs of one job: seeds, or a search for good settings."""

    api_version: Literal["rljob.dev/v1alpha1"]
    """The API this document is written for."""
    kind: Literal["RLExperiment"]
    """What the document describes: an experiment."""
    metadata: Metadata
    """Its name, of which its runs are named <name>-<trial>, and labels."""
    spec: RLExperimentSpec
    """What is wanted of the experiment."""


def is_experiment(document: Mapping[str, Any]) -> bool:
    """Whether a manifest says that it is one of an experiment."""
    return document.get("kind") == EXPERIMENT_KIND


def model_of(document: Mapping[str, Any]) -> type[APIModel]:
    """The type of what a manifest says that it is: a job, unless it names an experiment."""
    return RLExperiment if is_experiment(document) else RLJob
