"""A trained policy as a checkpoint holds it: saved by the learner, loaded by the commands that score or show it."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from rljob.algorithms.registry import algorithm
from rljob.api import EnvironmentParameters
from rljob.api.environment import EnvironmentSource
from rljob.api.parameters import ParameterSet
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.files import directory_in, is_checkpoint, policies, stored
from rljob.checkpoints.location import Location
from rljob.checkpoints.names import JUDGED
from rljob.checkpoints.store import Checkpoint, CheckpointProblem
from rljob.envs.spec import EnvironmentSpec
from rljob.sources import notes_on, sources_of, to_load, with_files
from torch import Tensor, nn

log = logging.getLogger(__name__)


class SavedPolicy(NamedTuple):
    """``module``: the network in eval mode, on the CPU. ``manifest``: what the checkpoint says of itself (counters, digest)."""

    module: nn.Module
    spec: EnvironmentSpec
    params: ParameterSet
    env_params: EnvironmentParameters
    manifest: dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyIdentity:
    """The algorithm, the environment and the parameters of a policy; part of every checkpoint. ``judged_in``: the environment
    that its run judges it in, None where that is not known."""

    algorithm: str
    spec: EnvironmentSpec
    params: ParameterSet
    env_params: EnvironmentParameters
    judged_in: EnvironmentSource | None = None

    @property
    def judged(self) -> Self:
        """The same policy, in the environment that it is judged in."""
        if (place := self.judged_in) is None:
            return self
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, id=place.id), env_params=place.parameters)

    def document(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "environment": dataclasses.asdict(self.spec),
            "parameters": self.params.model_dump(mode="json"),
            "environmentParameters": self.env_params.model_dump(mode="json"),
            "judgedIn": None if self.judged_in is None else self.judged_in.model_dump(mode="json"),
        }

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self:
        """Read back ``document()``. Raises CheckpointProblem when the manifest lacks it or was written for other types."""
        try:
            name = str(manifest["algorithm"])
            return cls(
                algorithm=name,
                spec=EnvironmentSpec.of(manifest["environment"]),
                params=algorithm(name).parameters.model_validate(manifest["parameters"]),
                env_params=EnvironmentParameters.model_validate(manifest["environmentParameters"]),
                judged_in=EnvironmentSource.model_validate(place) if (place := manifest.get("judgedIn")) else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointProblem(f"the checkpoint does not say what it is a policy of: {error}") from None


def load_policy(source: Location, listed: Callable[[Location], list[Location]] = policies) -> SavedPolicy:
    """The policy of a checkpoint, or of a run or a place of checkpoints: its best judged one, else its newest valid checkpoint.
    ``listed``: other checkpoints there, in the order in which they are looked at.

    Where the run kept evaluation weights (a moving average), those are the policy. Files of its user's that are gone are loaded
    from the run's copies of them; the log says so, and which were edited. Raises CheckpointProblem, and StorageProblem
    where the place cannot be asked.
    """
    if isinstance(source, Path) and not source.is_dir():
        kind = "not a folder" if source.exists() else "no such file or folder"
        raise CheckpointProblem(f"{source}: {kind}; give a run folder or one of its checkpoints")
    found = _find(source, listed)
    if isinstance(source, Path):
        whole = source.absolute()
        run_dir = next((each for each in (whole, *whole.parents[:2]) if sources_of(each)), whole)
        for note in notes_on(run_dir):
            log.warning("%s", note)
        manifest = with_files(found.manifest, functools.partial(to_load, run_dir=run_dir))
        found = dataclasses.replace(found, manifest=manifest)
    identity = PolicyIdentity.of(found.manifest)
    module: nn.Module = algorithm(identity.algorithm).build(identity.spec, identity.params, identity.env_params)
    state = policy_state(found, identity.algorithm)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointProblem(f"the tensors of {found.path} are not those of its network: {error}") from None
    return SavedPolicy(
        module.float().eval().requires_grad_(False), identity.spec, identity.params, identity.env_params, found.manifest
    )


def policy_state(found: Checkpoint, name: str) -> dict[str, Tensor]:
    """The state of the network to judge, of an algorithm's policy: the best verdict's weights, else the evaluation average, else
    what acts of the online ones."""
    for section in ("policy", "evaluation", "online"):
        if state := found.section(section):
            return acting_state(state, algorithm(name).acting) if section == "online" else state
    raise CheckpointProblem(f"{found.path} holds no policy")


def acting_state(state: Mapping[str, Tensor], acting: str) -> dict[str, Tensor]:
    """What is of the submodule ``acting`` in the state of a network, by its own names; all of it where that is no name."""
    within = f"{acting}." if acting else ""
    return {name.removeprefix(within): tensor for name, tensor in state.items() if name.startswith(within)}


def come_to(directory: Location) -> list[Location]:
    """What a run has come to that trains: the best by its evaluator, else the newest. Raises StorageProblem."""
    return [each for each in policies(directory) if each.name != JUDGED]


def keep_judged(source: Location, verdict: Mapping[str, Any]) -> None:
    """Keep what a run has `come_to` as the best by the games of its experiment, with their ``verdict``; training goes on from its
    newest checkpoint all the same. Raises CheckpointProblem and StorageProblem."""
    found = _find(source, come_to)
    state = {f"policy.{name}": tensor for name, tensor in policy_state(found, found.manifest["algorithm"]).items()}
    statistics = {name: tensor for name, tensor in found.tensors.items() if name.startswith("statistics.")}
    checkpoint.write(found.path.parent, JUDGED, state | statistics, {**found.manifest, "verdict": verdict})


def keep_scored(source: Location, name: str) -> Location:
    """Keep the newest checkpoint of a run, whole, under ``name`` (one of `SCORED`) for others to fork from, and answer where.
    Raises as `keep_judged`."""
    found = _find(source, stored)
    return checkpoint.write(found.path.parent, name, found.tensors, found.manifest)[0]


def _find(source: Location, listed: Callable[[Location], list[Location]]) -> Checkpoint:
    if is_checkpoint(source):
        return checkpoint.read(source)
    if (found := checkpoint.latest_valid(directory_in(source), listed)) is not None:
        return found
    raise CheckpointProblem(
        f"there is no valid checkpoint in {source}, where a run writes none before its first update; give a run or a checkpoint "
        "of one"
    )
