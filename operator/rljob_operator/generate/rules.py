"""The rules of the chart's Roles, as templates: the rows of `rljob_operator.kube.process.rbac`, each with its reason."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rljob_operator.kube.process.rbac import TABLE, Where

HEAD = "{{/* Made from operator/rljob_operator/kube/process/rbac.py by `make generate`. */}}\n"
BLOCKS: dict[str, tuple[Where, ...]] = {
    "rljob-operator.rulesOfJobs": ("Jobs", "Queue"),
    "rljob-operator.rulesOfAllJobs": ("Jobs", "Cluster", "Queue", "QueueCluster"),
    "rljob-operator.rulesOfCluster": ("Cluster", "QueueCluster"),
    "rljob-operator.rulesOfOperator": ("Operator",),
}
"""Names of the templates; what stands for `Outside` is granted to nobody who runs in a pod."""


def rules_template() -> str:
    """The file's text."""
    return HEAD + "".join(
        f'\n{{{{- define "{name}" -}}}}\n{_rules(where)}{{{{- end -}}}}\n' for name, where in BLOCKS.items()
    )


ONLY_WHERE: dict[Where, str] = dict.fromkeys(("Queue", "QueueCluster"), "(.Values.config.kueue).enabled")
"""The value of the chart without which such rows are not granted."""


def _rules(where: tuple[Where, ...]) -> str:
    blocks = ("".join("".join(_lines(each.rule, each.why)) for each in TABLE if each.where == one) for one in where)
    return "".join(_if(ONLY_WHERE.get(one), text) for one, text in zip(where, blocks, strict=True))


def _if(value: str | None, text: str) -> str:
    return text if value is None else f"{{{{- if {value} }}}}\n{text}{{{{- end }}}}\n"


def _lines(rule: dict[str, list[str]], why: str) -> Iterator[str]:
    yield f"# {why}\n"
    for index, (name, values) in enumerate(rule.items()):
        yield f"{'  ' if index else '- '}{name}: {json.dumps(values)}\n"
