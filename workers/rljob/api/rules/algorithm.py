"""Rules of the algorithm's type, of its block, and of the preset that may name both."""

from rljob.api.algorithm import BLOCKS
from rljob.api.job import RLJobSpec
from rljob.api.presets import PRESETS
from rljob.api.problems import ABSENT
from rljob.api.rule import Broken, Outcome, holds, rule


def _presets_of(algorithm: str) -> str:
    return ", ".join(f"'{name}'" for name, preset in PRESETS.items() if preset.algorithm_type == algorithm)


_OF_PRESET = "(" + "".join(f"self.preset in [{_presets_of(each)}] ? '{each}' : " for each in BLOCKS) + "'')"
_FITS = f"!has(self.preset) || !has(self.algorithm) || !has(self.algorithm.type) || self.algorithm.type == {_OF_PRESET}"
_OF_BLOCK = " : ".join(
    [*(f"has(self.algorithm) && has(self.algorithm.{block}) ? '{type}'" for type, block in BLOCKS.items()), "'PPO'"]
)
TYPE = (
    "(has(self.algorithm) && has(self.algorithm.type) ? self.algorithm.type : "
    f"has(self.preset) ? {_OF_PRESET} : {_OF_BLOCK})"
)
"""CEL: the algorithm's type: written, that of the preset or of the block, or the default."""
_ALONE = ", ".join(
    f"'{type}': {' && '.join(f'!has(self.algorithm.{other})' for other in BLOCKS.values() if other != block)}"
    for type, block in BLOCKS.items()
)
"""CEL: the entries of a map from a type to whether no other type's block is there."""
_ANOTHER = "allowed: only the block of the algorithm's own type, " + ", ".join(
    f"{block} for {type}" for type, block in BLOCKS.items()
)
_PRESETS_TYPE = "allowed: the type of the preset's algorithm, or nothing, which means the same"
_WITHOUT_ENVIRONMENT = [name for name, preset in PRESETS.items() if not preset.environment_id]


an_environment_or_a_preset = holds(
    "an_environment_or_a_preset",
    RLJobSpec,
    "",
    lambda spec: True,  # the types require it, and `rljob.api.structure` says this message where one is missing
    reason="FieldValueRequired",
    cel="has(self.environment) && has(self.environment.id) || "
    f"has(self.preset) && !(self.preset in {_WITHOUT_ENVIRONMENT})",
    message=f"required: environment.id, or a preset that names one ({', '.join(_WITHOUT_ENVIRONMENT)} do not)",
)
a_factory_of_its_own = holds(
    "a_factory_of_its_own",
    RLJobSpec,
    "algorithm.custom",
    # Beside a preset, Custom is the wrong type anyhow.
    lambda spec: spec.algorithm.type != "Custom" or spec.preset is not None or spec.algorithm.custom is not None,
    reason="FieldValueRequired",
    cel="has(self.preset) || !has(self.algorithm) || !has(self.algorithm.type) || self.algorithm.type != 'Custom' || "
    "has(self.algorithm.custom)",
    message="required with type Custom: the algorithm's factory",
)


@rule(
    RLJobSpec,
    "algorithm.type",
    cel=_FITS,
    message=_PRESETS_TYPE,
)
def type_of_the_preset(spec: RLJobSpec) -> Outcome:
    if spec.preset is None or spec.algorithm.type == PRESETS[spec.preset].algorithm_type:
        return None
    return f"allowed: {PRESETS[spec.preset].algorithm_type}, which preset {spec.preset} is made for, or another preset or none"


@rule(
    RLJobSpec,
    "algorithm",
    reason="FieldValueForbidden",
    cel=f"!has(self.algorithm) || !({_FITS}) || "  # else the type is wrong, and the preset's own block stands beside it
    + f"{{{_ALONE}}}[{TYPE}]",
    message=_ANOTHER,
)
def block_of_the_type(spec: RLJobSpec) -> Outcome:
    if spec.preset is not None and spec.algorithm.type != PRESETS[spec.preset].algorithm_type:
        return None
    own = BLOCKS[spec.algorithm.type]
    others = [name for name in BLOCKS.values() if getattr(spec.algorithm, name) is not None and name != own]
    if not others:
        return None
    return Broken(f"allowed with type {spec.algorithm.type}: only the block {own}; remove {', '.join(others)}", ABSENT)
