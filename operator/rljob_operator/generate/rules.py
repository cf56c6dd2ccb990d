"""The rules of the chart's Roles, as templates: the rows of `rljob_operator.kube.process.rbac`, each with its reason."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rljob_operator.kube.process.rbac import TABLE, Where

HEAD = "{{/* Made from operator/rljob_operator/kube/process/rbac.py by `make generate`. */}}\n"
BLOCKS: dict[str, tuple[Where, ...]] = {
    "rljob-operator.rulesOfJobs": ("Jobs",),
    "rljob-operator.rulesOfAllJobs": ("Jobs", "Cluster"),
    "rljob-operator.rulesOfOperator": ("Operator",),
}
"""Names of the templates; what stands for `Outside` is granted to nobody who runs in a pod."""


def rules_template() -> str:
    """The file's text."""
    return HEAD + "".join(
        f'\n{{{{- define "{name}" -}}}}\n{_rules(where)}{{{{- end -}}}}\n' for name, where in BLOCKS.items()
    )


def _rules(where: tuple[Where, ...]) -> str:
    return "".join("".join(_lines(grant.rule, grant.why)) for grant in TABLE if grant.where in where)


def _lines(rule: dict[str, list[str]], why: str) -> Iterator[str]:
    yield f"# {why}\n"
    for index, (name, values) in enumerate(rule.items()):
        yield f"{'  ' if index else '- '}{name}: {json.dumps(values)}\n"
