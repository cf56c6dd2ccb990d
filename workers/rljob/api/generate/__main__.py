"""Write the CRDs, the chart's copies of them and docs/api-reference.md below the present folder."""

from pathlib import Path

from rljob.api.generate.crd import definition, experiment_definition, manifest
from rljob.api.generate.reference import reference

CRD_FILE = Path("manifests/crds/rljobs.rljob.dev.yaml")
CHART_CRD_FILE = Path("charts/rljob-operator/files/crds/rljobs.rljob.dev.yaml")
EXPERIMENT_CRD_FILE = Path("manifests/crds/rlexperiments.rljob.dev.yaml")
CHART_EXPERIMENT_CRD_FILE = Path("charts/rljob-operator/files/crds/rlexperiments.rljob.dev.yaml")
REFERENCE_FILE = Path("docs/api-reference.md")


def generated() -> dict[Path, str]:
    """Every generated file of the repository, by its path."""
    job, experiment = manifest(definition()), manifest(experiment_definition())
    crds = {CRD_FILE: job, CHART_CRD_FILE: job, EXPERIMENT_CRD_FILE: experiment, CHART_EXPERIMENT_CRD_FILE: experiment}
    return {**crds, REFERENCE_FILE: reference()}


def main() -> None:
    """Write the generated files."""
    for path, content in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        print(f"{path}: {len(content.encode()):,} bytes")


if __name__ == "__main__":
    main()
