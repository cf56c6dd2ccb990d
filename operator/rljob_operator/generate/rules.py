"""The rules of the chart's Roles, as templates, and docs/operator-rights.md: both are the rows of
`rljob_operator.kube.process.rbac`, each with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from rljob_operator.kube.process.rbac import TABLE, Grant, Where

HEAD = "{{/* Made from operator/rljob_operator/kube/process/rbac.py by `make generate`. */}}\n"
BLOCKS: dict[str, tuple[Where, ...]] = {
    "rljob-operator.rulesOfJobs": ("Jobs", "Queue"),
    "rljob-operator.rulesOfAllJobs": ("Jobs", "Cluster", "Queue", "QueueCluster"),
    "rljob-operator.rulesOfCluster": ("Cluster", "QueueCluster"),
    "rljob-operator.rulesOfOperator": ("Operator",),
}
"""Names of the templates; what stands for `Outside` is granted to no pod."""


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


_INTRODUCTION: Final = """\
# What the operator may do

Made from `operator/rljob_operator/kube/process/rbac.py` by `make generate`, as are the chart's Roles. Nothing else is granted,
and a test on a real API server compares the table with what the audit log says the operator has asked for: nothing more, nothing
less.

An operator of all namespaces has the rows of its jobs' namespaces in a ClusterRole; one of single namespaces has a Role in each
and no ClusterRole. It does without the rows of the cluster, unless the chart's value `rbac.clusterReads` grants them.
"""

_HEADINGS: Final[dict[Where, str]] = {
    "Jobs": "In the namespaces of jobs",
    "Operator": "In its own namespace",
    "Cluster": "In the cluster, with all namespaces or `rbac.clusterReads` only",
    "Outside": "In the namespaces of jobs, with `--reach pods-proxy` only",
    "Queue": "In the namespaces of jobs, with `kueue.enabled` only",
    "QueueCluster": "In the cluster, with `kueue.enabled` as well",
}


def rights_page() -> str:
    """The page as Markdown."""
    return "\n".join([_INTRODUCTION, *(_section(where, heading) for where, heading in _HEADINGS.items())])


def _section(where: Where, heading: str) -> str:
    return "\n".join(
        [
            f"## {heading}",
            "",
            "| group | resources | verbs | for |",
            "|---|---|---|---|",
            *(_row(grant) for grant in TABLE if grant.where == where),
            "",
        ]
    )


def _row(grant: Grant) -> str:
    resources = ", ".join(f"`{each}`" for each in grant.resources)
    return f"| {grant.group or 'core'} | {resources} | {', '.join(grant.verbs)} | {grant.why} |"
