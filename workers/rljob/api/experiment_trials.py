"""What an experiment tries: the settings of each trial, and the RLJob of each run. All of it follows from the manifest alone.

A draw is a hash of the search's seed, the trial's number and the parameter's path, so that a trial has the same settings wherever
and whenever it is asked for. Settings that a trial before it has are drawn again: as the seed of training is the same, too, they
would only be played twice. So are settings that make no valid job: not every value goes with every other one.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rljob.api.document import dump_document
from rljob.api.experiment import EXPERIMENT_KIND, Distribution, RLExperimentSpec
from rljob.api.fields import in_words, typed_place
from rljob.api.job import API_VERSION, KIND, RLJob
from rljob.api.lifecycle import CheckpointStorage
from rljob.api.load import parse_job
from rljob.api.overrides import Override, apply_overrides, segments_of
from rljob.api.problems import ManifestError
from rljob.api.types import Integer

_SHARE_BITS = 48
"""Bits of a hash that make a draw; a float holds them exactly."""
_DIGITS = 6
"""Significant digits of a drawn number, so that the last bit of a machine's logarithm does not matter."""
_MOST_REPEATED = 20_000
"""Draws that are drawn again. What is left of a small space may be too unlikely to wait for; trials may be equal then."""
_MOST_REFUSED = 200
"""Draws for each trial, on average, that make no valid job, before the search is refused."""
Settings = Mapping[str, Any]
"""Path of a field, as ``--set`` has it without ``spec.``, -> its value in a trial."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment that was found valid.

    Attributes:
        name: that of its manifest.
        spec: what is wanted, with ``budget.raw_frames`` filled in.
        document: its manifest as written, of which it can be made again.
        suggested: trial -> the settings that the scores of others have led to, as the experiment's journal has them. A trial
            that is not there is drawn.
    """

    name: str
    spec: RLExperimentSpec
    document: Mapping[str, Any]
    suggested: dict[int, Settings] = field(default_factory=dict, compare=False)
    _drawn: list[Settings] = field(default_factory=list, init=False, compare=False, repr=False)
    _known: set[str] = field(default_factory=set, init=False, compare=False, repr=False)
    _repeats: Iterator[int] = field(default_factory=count, init=False, compare=False, repr=False)
    refused: dict[str, ManifestError] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Settings that were drawn and left out, and why they make no valid job."""

    @property
    def trials(self) -> int:
        """How many settings are tried."""
        search, population = self.spec.search, self.spec.population
        if population is not None:
            return population.size
        if search is None:
            return 1
        if (drawing := search.random or search.tpe) is not None:
            return drawing.trials
        if search.listed is not None:
            return len(search.listed)
        return math.prod(len(each.values or ()) for each in search.parameters.values())

    @property
    def raw_frames(self) -> int:
        """The budget of a run."""
        assert self.spec.budget.raw_frames is not None, "filled in when the experiment was checked"
        return self.spec.budget.raw_frames

    @property
    def rungs(self) -> tuple[int, ...]:
        """Raw frames at which a trial's first run is judged; the last are its budget."""
        budget, prune, population = self.raw_frames, self.spec.prune, self.spec.population
        found = []
        if population is not None:
            first = population.burn_in_raw_frames or population.ready_raw_frames
            found = list(range(first, budget, population.ready_raw_frames))
        elif prune is not None and prune.halving is not None:
            first, factor = prune.halving.first_raw_frames, prune.halving.factor
            while first < budget:
                found.append(first)
                first *= factor
        elif prune is not None and prune.median is not None:
            found = list(range(prune.median.after_raw_frames, budget, prune.median.after_raw_frames))
        return (*found, budget)

    @property
    def plays_through(self) -> bool:
        """Whether a run plays on while it is judged: a member of a population that has a place for each."""
        population = self.spec.population
        return population is not None and self.spec.parallelism >= population.size

    @property
    def drawing(self) -> tuple[int, Mapping[str, Distribution]] | None:
        """The seed that settings are drawn with, and where they come from; None where they are not drawn."""
        search, population = self.spec.search, self.spec.population
        if population is not None:
            return population.seed, {**population.parameters, **population.initial}
        drawn = search and (search.random or search.tpe)
        return (drawn.seed, search.parameters) if search and drawn else None

    @property
    def in_words(self) -> str:
        """How large it is, as a sentence."""
        trials, seeds = self.trials, self.spec.seeds
        seeds_each = f" with {seeds} seeds{' where they play it all' if self.spec.prune else ''}" if seeds > 1 else ""
        left_out = f"; left out: {len(self.refused)} draws that make no valid job" if self.refused else ""
        return (
            f"{trials} trial{'s' if trials > 1 else ''}{seeds_each}, judged at {in_words([f'{each:,}' for each in self.rungs])} "
            f"raw frames, {min(self.spec.parallelism, trials * seeds)} at a time{left_out}"
        )

    def settings(self, trial: int) -> Settings:
        """What trial ``trial``, counted from 0, sets in the template."""
        search = self.spec.search
        if trial in self.suggested:
            return self.suggested[trial]
        if self.drawing is not None:
            while trial >= len(self._drawn):
                self._draw(*self.drawing)
            return self._drawn[trial]
        if search is None:
            return {}
        if search.listed is not None:
            return search.listed[trial]
        chosen = {}
        # By name, as a server may store a mapping in any order; the last changes from each trial to the next.
        for path, from_ in sorted(search.parameters.items(), reverse=True):
            trial, at = divmod(trial, len(from_.values or ()))
            chosen[path] = (from_.values or ())[at]
        return dict(reversed(chosen.items()))

    def run_name(self, trial: int, seed: int) -> str:
        """The name of a run's RLJob; ``seed`` counts from 1."""
        return f"{self.name}-{trial}" if seed == 1 else f"{self.name}-{trial}-s{seed}"

    def job(self, trial: int) -> RLJob:
        """The RLJob of a trial's first run, checked. Raises ManifestError where its settings make no valid job, and where no more
        of those that are drawn do."""
        if self.drawing is not None and trial == len(self._drawn):
            return self._draw(*self.drawing)
        return self.job_with(self.settings(trial), trial)

    def job_with(self, settings: Settings, trial: int) -> RLJob:
        """The same with these settings."""
        return parse_job(self.manifest(trial, 1, self.raw_frames, settings))

    def _draw(self, seed: int, parameters: Mapping[str, Distribution]) -> RLJob:
        """Draw the settings of the next trial: none twice where there are enough, none that make no valid job together. Raises
        ManifestError where a value is wrong by itself, and where no more are found."""
        trial, there_are = len(self._drawn), settings_there_are(parameters)
        for draw in count():
            refused = len(self.refused)
            if refused and (refused >= _MOST_REFUSED * (trial + 1) or refused + len(self._known) == there_are):
                break
            again = [draw] if draw else []
            settings = {
                path: value_at(share(seed, trial, path, *again), path, from_) for path, from_ in parameters.items()
            }
            key = identity(settings)
            known = key in self._known and len(self._known) < there_are and next(self._repeats) < _MOST_REPEATED
            if known or key in self.refused:
                continue
            try:
                job = self.job_with(settings, trial)
            except ManifestError as error:
                self.refused[key] = error
                if error.alone:
                    raise
                continue
            self._known.add(key)
            self._drawn.append(settings)
            return job
        raise next(iter(self.refused.values()))

    def manifest(self, trial: int, seed: int, raw_frames: int, settings: Settings | None = None) -> dict[str, Any]:
        """The RLJob of a run, as its user could have written it, with others than the trial's ``settings`` where they are given.
        Raises ManifestError where they make no valid job."""
        template = self.document["spec"]["template"]
        of_every_run = {name: part for name, part in (template.get("metadata") or {}).items() if part}
        written = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self.run_name(trial, seed), **of_every_run},
            "spec": template["spec"],
        }
        changed: list[Override] = sorted((self.settings(trial) if settings is None else settings).items())
        changed += _place_of_its_own(self.spec.template.spec.checkpoint.storage, self.run_name(trial, seed))
        document = apply_overrides(written, [*changed, ("successPolicy.rawFrames", raw_frames)])
        if self.spec.seeds == 1:
            return document
        return apply_overrides(document, [("seed", parse_job(document).spec.seed + seed - 1)])


def dump_experiment(experiment: Experiment) -> str:
    """The experiment in force as YAML: its own defaults filled in, the template as written."""
    metadata, template = experiment.document["metadata"], experiment.document["spec"]["template"]
    spec = json.loads(experiment.spec.model_dump_json(by_alias=True, exclude_none=True, exclude={"template"}))
    spec = {"template": template, **spec}  # what follows from other fields of it follows from them in each trial
    return dump_document({"apiVersion": API_VERSION, "kind": EXPERIMENT_KIND, "metadata": metadata, "spec": spec})


def _place_of_its_own(storage: CheckpointStorage | None, run: str) -> Iterator[Override]:
    """Overrides by which a run has its checkpoints in a folder of its own below the place of the template."""
    if storage is not None and storage.object_store is not None:
        yield "checkpoint.storage.objectStore.url", f"{storage.object_store.url.rstrip('/')}/{run}"
    if storage is not None and storage.persistent_volume_claim is not None:
        below = storage.persistent_volume_claim.sub_path
        yield "checkpoint.storage.persistentVolumeClaim.subPath", f"{below}{'/' if below else ''}{run}"


def settings_there_are(parameters: Mapping[str, Distribution]) -> float:
    """How many settings there are to draw; infinity where a parameter may be any number between its bounds."""
    return math.prod(_values_there_are(path, from_) for path, from_ in parameters.items())


def _values_there_are(path: str, from_: Distribution) -> float:
    if from_.values is not None:
        return len(set(map(identity, from_.values)))
    low, high = bounds(path, from_)
    return high - low + 1 if takes_integer(path) else math.inf


def identity(value: Any) -> str:
    """What tells values apart: 1, 1.0, true and "1" are four."""
    return json.dumps(value, sort_keys=True)


def share(*key: Any) -> float:
    """A number from 0 to below 1 that follows from ``key`` alone."""
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return int.from_bytes(digest[: _SHARE_BITS // 8], "big") / (1 << _SHARE_BITS)


def value_at(share: float, path: str, from_: Distribution) -> Any:
    """The value of a parameter that has ``share`` of all below it."""
    if from_.values is not None:
        return from_.values[int(share * len(from_.values))]
    low, high = bounds(path, from_)
    last = high + 1 if takes_integer(path) else high  # each whole number has a share of its own
    number = low * (last / low) ** share if from_.log_uniform is not None else low + (last - low) * share
    return rounded(number, low, high)


def bounds(path: str, from_: Distribution) -> tuple[float, float]:
    """The least and the most that a parameter may be that has no values; whole numbers where the field takes an integer."""
    between = from_.log_uniform or from_.uniform
    assert between is not None, "a distribution is one of three"
    return (math.ceil(between.min), math.floor(between.max)) if takes_integer(path) else (between.min, between.max)


def rounded(number: float, low: float, high: float) -> float:
    """The number as a trial has it, between these bounds: whole where they are."""
    return min(int(number), int(high)) if isinstance(low, int) else min(max(float(f"{number:.{_DIGITS}g}"), low), high)


def takes_integer(path: str) -> bool:
    """Whether the field at ``path`` takes an integer. What no type describes, such as parameters of one's own, does not."""
    place = typed_place(RLJob, segments_of(path))
    return place is not None and any(isinstance(marker, Integer) for marker in place.metadata)
