"""docs/operator-rights.md: what the operator may ask of the API server and why, from the table that its Roles are made from."""

from __future__ import annotations

from typing import Final

from rljob_operator.kube.process.rbac import TABLE, Grant, Where

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
    rows = [_row(grant) for grant in TABLE if grant.where == where]
    return "\n".join([f"## {heading}", "", "| group | resources | verbs | for |", "|---|---|---|---|", *rows, ""])


def _row(grant: Grant) -> str:
    resources = ", ".join(f"`{each}`" for each in grant.resources)
    return f"| {grant.group or 'core'} | {resources} | {', '.join(grant.verbs)} | {grant.why} |"
