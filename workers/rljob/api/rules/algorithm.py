"""Rules of ``spec.algorithm`` that depend on what the user wrote, beyond the values that come of it."""

from __future__ import annotations

from rljob.api.algorithm import AlgorithmSpec
from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.rule import Broken, Outcome, rule


@rule(
    AlgorithmSpec,
    "parameters.targetUpdateInterval",
    algorithm="ApeXDQN",
    reason="FieldValueForbidden",
    cel="$targetUpdateTau == 0.0 || !self.parameters.exists(p, p.name == 'targetUpdateInterval')",
    message="allowed: nothing beside targetUpdateTau, which updates the target network little by little "
    "and never copies it; remove one of the two",
)
def one_way_to_the_target(algorithm: AlgorithmSpec, parameters: ApeXDQNParameters) -> Outcome:
    given = {item.name: item.value for item in algorithm.parameters}
    if parameters.target_update_tau == 0 or "targetUpdateInterval" not in given:
        return None
    return Broken(
        f"allowed: nothing beside targetUpdateTau ({parameters.target_update_tau:g}), which updates the target network little "
        "by little and never copies it; remove one of the two",
        given["targetUpdateInterval"],
    )
