"""Which files of the repository are made from the controller's code, and which from the chart by other programs: Helm makes the
manifest for those without Helm, helm-docs the table of values.

The operator's configuration, from its types: docs/operator-configuration.md, and the part of the chart's schema that describes
``config`` (JSON Schema, draft 7).

The rules of the chart's Roles, as templates, and docs/operator-rights.md: both are the rows of
`rljob_operator.kube.process.rbac`, each with its reason.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rljob.api.fields import TypedPlace
from rljob.api.generate.reference import field_list
from rljob.api.generate.schema import schema_of

from rljob_operator.kube.process.configuration import AT_ONCE, OperatorConfiguration
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


_RULES_INTRODUCTION: Final = """\
# What the operator may do

Made from `operator/rljob_operator/kube/process/rbac.py` by `make generate`, like the chart's Roles. A test on a real API server
checks that the operator uses these rights and no others.

An operator of all namespaces has the rows of its jobs' namespaces in a ClusterRole. One of single namespaces has a Role in each
and no ClusterRole, and no rows of the cluster unless you set `rbac.clusterReads`.
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
    return "\n".join([_RULES_INTRODUCTION, *(_section(where, heading) for where, heading in _HEADINGS.items())])


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


_AT_ONCE = " and ".join(f"`{name}`" for name in AT_ONCE)

_INTRODUCTION = f"""\
# The operator's configuration

Defaults for jobs, set by an administrator: the YAML of `rljob operator --config FILE`, and the chart's value `config`. Every
field is optional. Unknown fields and wrong values are refused, all at once and with their paths. Options on the command line win.
Brackets hold the type and the default. Made from `operator/rljob_operator/kube/process/configuration.py` by `make generate`.

**A change restarts no pod of a running job.** A job keeps its settings (`status.controller.rendering`), also for new pods, until
it is suspended and resumed or its user changes fields that roles read at their start. It keeps its claim for checkpoints for
life. Only {_AT_ONCE}, and the operator's own namespace, apply at once.

"""


def configuration_page() -> str:
    """The page as Markdown."""
    return _INTRODUCTION + field_list(TypedPlace(OperatorConfiguration))


VALUE = "config"
_KUBERNETES = "x-kubernetes-"


def with_configuration(values_schema: str) -> str:
    """The chart's schema, written by hand, with its part about ``config`` made anew."""
    schema = json.loads(values_schema)
    schema["properties"][VALUE] = strict(schema_of(OperatorConfiguration, VALUE))
    return json.dumps(schema, indent=2) + "\n"


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A structural schema of Kubernetes as JSON Schema: what it does not name is refused, and a quantity may be a number."""
    found = {key: value for key, value in schema.items() if not key.startswith(_KUBERNETES)}
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["number", "string"]
    if "properties" in schema:
        found["properties"] = {name: strict(below) for name, below in schema["properties"].items()}
        found["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found[key] = strict(schema[key])
    return found


RELEASE, NAMESPACE = "rljob-operator", "rljob-system"
_HEAD = f"""\
# The operator with its CRD, for those without Helm: kubectl apply -f manifests/install.yaml
# Made from charts/rljob-operator by `make generate`. Change the chart, not this file.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
"""
_OF_HELM = re.compile(r"^ +(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)
"""Labels that say that Helm looks after an object."""


class MissingProgram(RuntimeError):
    """A program is not on the PATH. ``str()`` names it."""


def install_manifest(chart: Path, helm: str = "helm") -> str:
    """The chart with its defaults as plain manifests, in the order in which they are applied; hooks are Helm's alone."""
    rendered = _output(
        helm,
        "template",
        RELEASE,
        str(chart),
        f"--namespace={NAMESPACE}",
        "--no-hooks",
        "--set=crds.keep=false",
        "--kube-version=1.36.0",
    )
    return _HEAD + _OF_HELM.sub("", rendered)


def chart_readme(chart: Path, helm_docs: str = "helm-docs") -> str:
    """The chart's README.md, from README.md.gotmpl and the comments of values.yaml."""
    return _output(
        helm_docs,
        f"--chart-search-root={chart}",
        "--dry-run",
        "--skip-version-footer",
        "--sort-values-order=file",
        "--log-level=warning",
    )


def _output(program: str, *words: str) -> str:
    if shutil.which(program) is None:
        raise MissingProgram(program)
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


CHART = Path("charts/rljob-operator")
RULES_FILE = CHART / "templates" / "_rules.tpl"
SCHEMA_FILE = CHART / "values.schema.json"
CONFIGURATION_PAGE = Path("docs/operator-configuration.md")
RIGHTS_PAGE = Path("docs/operator-rights.md")
INSTALL_FILE = Path("manifests/install.yaml")
README_FILE = CHART / "README.md"


def generated(root: Path) -> dict[Path, str]:
    """Every file that this code alone makes, by its path below ``root``, the repository."""
    return {
        RULES_FILE: rules_template(),
        SCHEMA_FILE: with_configuration((root / SCHEMA_FILE).read_text()),
        CONFIGURATION_PAGE: configuration_page(),
        RIGHTS_PAGE: rights_page(),
    }


OF_THE_CHART: dict[Path, Callable[[Path], str]] = {INSTALL_FILE: install_manifest, README_FILE: chart_readme}
"""Files that other programs make of the chart, of which they are given the folder. They raise `MissingProgram`."""


def main() -> None:
    """Write the generated files; those that need a program which is not there stay as they are, and are named."""
    for path, content in generated(Path()).items():
        _write(path, content)
    for path, make in OF_THE_CHART.items():
        try:
            _write(path, make(CHART))
        except MissingProgram as missing:
            print(f"{path}: not made anew, because {missing} is not on the PATH")


def _write(path: Path, content: str) -> None:
    path.write_text(content)
    print(f"{path}: {len(content.encode()):,} bytes")


if __name__ == "__main__":
    main()
