"""The tutorial docs/tutorials/first-cluster.md, typed as it is written from its job on; `test_chart.py` installs the operator."""

from pathlib import Path

from tests.e2e.cluster import Namespace
from tests.e2e.operator_process import OperatorProcess
from tests.support.documents import TUTORIALS, followed


def test_a_tutorial_works_as_it_is_written(
    bare_namespace: Namespace, operator: OperatorProcess, tmp_path: Path
) -> None:
    home = tmp_path / "kubeconfig"
    home.write_bytes(bare_namespace.kubeconfig.read_bytes())
    here = Namespace(home, bare_namespace.name)
    here.kubectl("config", "set-context", "--current", f"--namespace={here.name}")
    said = followed(TUTORIALS / "first-cluster.md", tmp_path, KUBECONFIG=str(home))
    assert "Running" in said
    assert here.list("rljobs") == []
