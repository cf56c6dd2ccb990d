"""RLExperiment, group ``rljob.dev``, version ``v1alpha1``: several runs of one job, compared, of which the best is sought."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.job import Metadata, RLJob, RLJobSpec
from rljob.api.status import Condition
from rljob.api.status_model import Count, StatusModel, Timestamp, Word
from rljob.api.types import APIModel, DecimalText, Flag, Integer, JSONObject, Real, Seconds, Text

EXPERIMENT_KIND = "RLExperiment"
MOST_TRIALS = 1000
"""A status that lists them all would be too large, and a person could not read it."""
WHY_COMMON = (
    "template.spec.checkpoint.storage: required of a population on a cluster, since its members read the checkpoints of one "
    "another: a bucket, or a claim that pods on all nodes can mount"
)


_STEP = r"[^.\[\]\s=]+"
_Path = Annotated[str, Text(253, "the path of a field below spec", rf"^{_STEP}(\.{_STEP}|\[[^\[\]\s=]+\])*$")]


class TemplateMetadata(APIModel):
    """Metadata of every run, beside its name."""

    labels: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Labels of every run; kueue.x-k8s.io/queue-name names a queue."""
    annotations: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Notes on every run."""


class JobTemplate(APIModel):
    """The RLJob to run."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of every run."""
    spec: RLJobSpec
    """The spec of an RLJob (``kubectl explain rljob.spec``). Each run changes a copy of it."""


class Interval(APIModel):
    """Numbers from min to max."""

    min: Annotated[float, Real()]
    """Lower bound of the values."""
    max: Annotated[float, Real()]
    """Upper bound of the values."""


class Distribution(APIModel):
    """Where the values of one parameter come from; set exactly one field."""

    log_uniform: Interval | None = None
    """Uniform in the logarithm, for rates and costs."""
    uniform: Interval | None = None
    """Uniform between the bounds; whole numbers for integer fields."""
    values: list[Any] | None = Field(default=None, min_length=1, max_length=1000)
    """A list of equally likely values."""


class RandomSearch(APIModel):
    """Trials with randomly drawn settings."""

    trials: Annotated[int, Integer(1, MOST_TRIALS)]
    """Number of trials."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 0
    """Seed of the draws; the same seed draws the same trials."""


class GridSearch(APIModel):
    """Every combination of the values of all parameters."""


class TPESearch(APIModel):
    """Trials suggested by earlier scores; needs the extra [optuna]."""

    trials: Annotated[int, Integer(1, MOST_TRIALS)]
    """Number of trials."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 0
    """Seed of the draws."""
    startup_trials: Annotated[int, Integer(1, MOST_TRIALS)] = 10
    """Trials drawn at random until this many have a score."""


class SearchSpec(APIModel):
    """The settings to try: exactly one of random, grid, list and tpe."""

    random: RandomSearch | None = None
    """Draw settings from parameters at random."""
    grid: GridSearch | None = None
    """Try all combinations of parameters, each a list of values."""
    listed: list[Annotated[dict[str, Any], JSONObject()]] | None = Field(
        default=None, alias="list", min_length=1, max_length=MOST_TRIALS
    )
    """Settings written out, one mapping a trial, such as {algorithm.learningRate: 1e-3}."""
    tpe: TPESearch | None = None
    """Let a tree-structured Parzen estimator suggest settings from parameters."""
    parameters: dict[_Path, Distribution] = Field(default_factory=dict, max_length=64)
    """Paths of RLJob fields, as for ``--set``, and where their values come from."""


class Halving(APIModel):
    """Asynchronous successive halving: at each rung the best of factor go on with factor times as many raw frames."""

    first_raw_frames: Annotated[int, Integer(1)]
    """Raw frames at the first rung."""
    factor: Annotated[int, Integer(2, 100)] = 3
    """One in this many trials goes on from a rung, to this many times the raw frames."""


class MedianRule(APIModel):
    """End a trial whose score is below the median of the others at the same raw frames."""

    after_raw_frames: Annotated[int, Integer(1)]
    """Raw frames before the first judgement of a trial, and between two."""
    min_trials: Annotated[int, Integer(1, MOST_TRIALS)] = 5
    """Scores of other trials at these raw frames that a judgement needs."""


class PruneSpec(APIModel):
    """Which trials end before their budget: exactly one rule."""

    halving: Halving | None = None
    """End trials by asynchronous successive halving."""
    median: MedianRule | None = None
    """End a trial whose score is below the median of the others."""


class ExploitSpec(APIModel):
    """Which members copy another, and which one."""

    truncation_percent: Annotated[int, Integer(1, 50)] = 25
    """Percentage of members (at least one), lowest by newest score, that may each copy one of as many highest."""
    min_gap_standard_errors: Annotated[float, Real(0)] = 2.0
    """Smallest gap between the two scores, in standard errors of the difference."""
    games: Annotated[int, Integer(2)] = 20
    """Games that rank a member at each step, the same for all members."""


class ExploreSpec(APIModel):
    """How copied settings are varied."""

    factor: Annotated[float, Real(1, 10, above=True)] = 1.2
    """Multiply or divide a number by this, within the bounds of its parameter; of listed values take a neighbour."""
    probability: Annotated[float, Real(0, 1)] = 0.33
    """Probability of that for each parameter."""
    resample: Annotated[float, Real(0, 1)] = 0.05
    """Probability of drawing a parameter again instead."""


class PopulationSpec(APIModel):
    """Population-based training: members that train at the same time copy weights and settings of better ones, and vary the
    settings."""

    size: Annotated[int, Integer(2, 100)]
    """Number of members; each is a run."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 0
    """Seed of the draws; the first settings are those of search.random with the same seed."""
    burn_in_raw_frames: Annotated[int, Integer(1)] | None = None
    """Raw frames before a member's first judgement. Unset: readyRawFrames."""
    ready_raw_frames: Annotated[int, Integer(1)]
    """Raw frames between two judgements of a member."""
    exploit: ExploitSpec = Field(default_factory=ExploitSpec)
    """Which members copy another."""
    explore: ExploreSpec = Field(default_factory=ExploreSpec)
    """How copied settings are varied."""
    reference: Flag = False
    """true: member 0 keeps its settings and copies no member, as a baseline."""
    parameters: dict[_Path, Distribution] = Field(min_length=1, max_length=64)
    """Paths of live RLJob fields, as for ``--set``, and where their values come from."""
    initial: dict[_Path, Distribution] = Field(default_factory=dict, max_length=64)
    """Distributions of first values, if narrower than the bounds."""


class ExperimentBudget(APIModel):
    """What the experiment may cost."""

    raw_frames: Annotated[int, Integer(1)] | None = None
    """Raw frames of each run. Unset: successPolicy.rawFrames of the template."""
    seconds: Seconds | None = None
    """Working time of the whole experiment; then the best trial so far is judged."""


class RLExperimentSpec(APIModel):
    """What to try, and what it may cost."""

    suspend: Flag = False
    """true, on a cluster: save and stop all runs. On one machine use `rljob stop`."""
    template: JobTemplate
    """The RLJob to run."""
    seeds: Annotated[int, Integer(1, 100)] = 1
    """Runs of each setting; seeds count up from the template's. With prune, further seeds start once the first has played its
    whole budget."""
    search: SearchSpec | None = None
    """The settings to try. Unset: the template alone."""
    prune: PruneSpec | None = None
    """Which trials end early."""
    population: PopulationSpec | None = None
    """Population-based training, instead of search and prune."""
    budget: ExperimentBudget = Field(default_factory=ExperimentBudget)
    """What the experiment may cost."""
    parallelism: Annotated[int, Integer(1, MOST_TRIALS)] = 1
    """Runs at the same time."""
    max_failed_trials: Annotated[int, Integer(0, MOST_TRIALS)] = 3
    """Failed runs that the experiment tolerates."""


class RLExperiment(APIModel):
    """Several runs of one job: seeds, or a search for good settings."""

    api_version: Literal["rljob.dev/v1alpha1"]
    """API version of this document."""
    kind: Literal["RLExperiment"]
    """Kind of this document."""
    metadata: Metadata
    """Name and labels; runs are named <name>-<trial>."""
    spec: RLExperimentSpec
    """The experiment you want."""


MOST_ROWS = 200
"""Trials that a status lists. A Kubernetes object with every one of a thousand would be refused as too large."""
MOST_SEEDS = 100


class TrialStatus(StatusModel):
    """A judged trial."""

    trial: Count
    """Number of the trial, from 0."""
    set: Annotated[str, Text(1024, "text", shortest=0)] = ""
    """Settings, each field by its last name."""
    seeds: Count = 1
    """Number of runs that count."""
    raw_frames: Count = 0
    """Raw frames of its first run at the weights that have its score."""
    mean: Annotated[float, DecimalText()]
    """Mean return of its best weights, over its seeds."""
    standard_error: Annotated[float, DecimalText(0)]
    """Standard error of the mean: over seeds, or over games if it has one seed."""
    newest_mean: Annotated[float, DecimalText()] | None = None
    """Mean return of its newest weights."""
    state: Word = ""
    """Running, Waiting, Done, Pruned or Failed."""


class FreshVerdict(StatusModel):
    """The best trial on games that did not choose it."""

    mean: Annotated[float, DecimalText()]
    """Mean return, over its seeds."""
    standard_error: Annotated[float, DecimalText(0)]
    """Standard error of the mean."""
    episodes: Count
    """Games of each seed."""


class RLExperimentStatus(StatusModel):
    """Status of an experiment."""

    observed_generation: Count = 0
    """Generation of the spec that this status describes; 0 before the first reconciliation."""
    trials: Count = 0
    """Number of trials in all."""
    done: Count = 0
    """Trials whose runs have all ended."""
    running: Count = 0
    """Runs that play or are judged."""
    failed: Count = 0
    """Failed runs; maxFailedTrials limits them."""
    seconds: Count = 0
    """Working time, for budget.seconds."""
    best: TrialStatus | None = None
    """The best trial so far."""
    runs: list[Annotated[str, Text(63, "a name")]] = Field(default_factory=list, max_length=MOST_SEEDS)
    """RLJobs of the best trial."""
    fresh: FreshVerdict | None = None
    """The best trial, judged again on new games at the end: the number to quote."""
    rows: list[TrialStatus] = Field(default_factory=list, max_length=MOST_ROWS)
    """Judged trials, the best first; the journal has all."""
    journal_lines: Count = 0
    """Lines of the journal, in ConfigMaps with the label rljob.dev/experiment."""
    start_time: Timestamp | None = None
    """When the operator first acted on it."""
    completion_time: Timestamp | None = None
    """When the experiment ended."""
    conditions: list[Condition] = Field(default_factory=list, max_length=8)
    """Conditions; find each by its type."""


def is_experiment(document: Mapping[str, Any]) -> bool:
    """Whether a manifest says that it is one of an experiment."""
    return document.get("kind") == EXPERIMENT_KIND


def model_of(document: Mapping[str, Any]) -> type[APIModel]:
    """The type of what a manifest says that it is: a job, unless it names an experiment."""
    return RLExperiment if is_experiment(document) else RLJob
