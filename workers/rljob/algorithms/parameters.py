"""What the loops read of an algorithm's parameters, whichever algorithm it is. All else is the algorithm's own affair. A wrong
default of a plug-in is its author's mistake, and none in a manifest.

Needs no torch. A parameter set satisfies these by having the fields; nothing has to be registered.
"""

from typing import Protocol, runtime_checkable

from pydantic import ValidationError

from rljob.api.parameters import ParameterSet
from rljob.api.structure import structural_problems
from rljob.loading import PLUGIN_FAILURES, PluginProblem


class LearnerParameters(Protocol):
    """What actors and learner read for every algorithm. What each means stands in ``docs/api-reference.md``."""

    @property
    def gamma(self) -> float:
        """The discount per step."""

    @property
    def batch_size(self) -> int:
        """Transitions, or unrolls, of a batch."""

    @property
    def prefetch_batches(self) -> int:
        """Batches that the learner asks for ahead of use."""

    @property
    def publish_interval(self) -> int:
        """In updates."""

    @property
    def precision(self) -> str:
        """Auto, Plain, FP32, TF32, BF16 or FP16."""

    @property
    def compile(self) -> bool | None:
        """None: neither asked for nor refused."""

    @property
    def optimizer(self) -> str:
        """Adam, RMSProp or CentredRMSProp."""

    @property
    def optimizer_epsilon(self) -> float:
        """What keeps the optimiser's denominator from zero."""

    @property
    def rmsprop_decay(self) -> float:
        """Of RMSProp's running means."""

    @property
    def rmsprop_momentum(self) -> float:
        """Of RMSProp."""

    @property
    def gradient_clip_norm(self) -> float:
        """0 does not clip."""

    @property
    def learning_rate(self) -> float:
        """At the start."""

    @property
    def learning_rate_final(self) -> float:
        """At the end of the decay."""

    @property
    def learning_rate_decay_steps(self) -> int:
        """In agent steps of all environments; 0 keeps the learning rate."""

    @property
    def evaluation_weights_decay(self) -> float:
        """Decay of the moving average of the weights, per update; 0 keeps none."""


@runtime_checkable
class TransitionParameters(LearnerParameters, Protocol):
    """What is read besides where an algorithm learns from transitions: by the actors, the replay service, the target network."""

    @property
    def n_step(self) -> int:
        """Steps of reward before the bootstrap value."""

    @property
    def chunk_length(self) -> int:
        """Steps of one environment that are sent and stored together."""

    @property
    def target_update_interval(self) -> int:
        """In updates."""

    @property
    def target_update_tau(self) -> float:
        """Above 0, the target network moves by this share at each update instead."""


class UnrollParameters(LearnerParameters, Protocol):
    """What is read besides where an algorithm learns from unrolls. (``rljob.api.UnrollQueue`` is its ``unroll_queue``.)"""

    @property
    def unroll_length(self) -> int:
        """Steps of one environment."""


def check_defaults(whose: str, kind: type[ParameterSet]) -> None:
    """Raise PluginProblem where a default of ``kind`` does not match its type. Rules between several fields are not checked: they
    may need values that only a manifest gives."""
    try:
        kind.model_validate({}, by_alias=True, by_name=False)
    except ValidationError as error:
        problems, places = structural_problems(error, kind)
        names = {field.alias or name: name for name, field in kind.model_fields.items()}
        for problem, place in zip(problems, places, strict=True):
            name = names.get(str(place[0]) if place else "")
            if name is not None and not kind.model_fields[name].is_required():
                raise PluginProblem(
                    f"{whose}: the default of {name} in {kind.__name__} is {problem.value!r}; {problem.message}"
                ) from None
    except PLUGIN_FAILURES:  # a check of the author's own that fails is told where it is asked about a manifest
        return
