"""``rljob demo``: CartPole from a checkout to its verdict on a cluster, and every trace of it removed again."""

import json
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rljob.api import API_VERSION, KIND
from rljob.api.exit_codes import EXIT_FAILURE, EXIT_UNAVAILABLE
from rljob.command_errors import one_line_errors
from rljob.data_plane import require_data_plane
from rljob.errors import CommandRefused, UsageError

from rljob_operator.verbs.jobs import Place, wait_for
from rljob_operator.view.job_view import JobView, table
from rljob_operator.view.reasons import ending

NAME: Final = "rljob-demo"
"""Of the kind cluster, the namespace and the release."""
EXAMPLE, PRESET = "cartpole-impala", "CartPoleIMPALA"
BUILT: Final = f"localhost/rljob-worker:{NAME}"
"""No node looks for this name in a registry, and Podman does not change it."""
MARK: Final = "rljob.dev/demo"
"""Label of each namespace, and of each kind cluster's node, that the demo has made. It removes no other."""
CRDS: Final = ("rljobs.rljob.dev", "rlexperiments.rljob.dev")
_CHART: Final = Path("charts/rljob-operator")
_KIND_CLUSTER: Final = {
    "kind": "Cluster",
    "apiVersion": "kind.x-k8s.io/v1alpha4",
    "nodes": [{"role": "control-plane", "labels": {MARK: "true"}}],
}
_NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME, "labels": {MARK: "true"}}}
_REMEDIES: Final = {
    "kubectl": "kubernetes.io has it",
    "helm": "helm.sh has it",
    "kind": "kind.sigs.k8s.io has it; or name a cluster of yours with --context",
    "docker or podman": "it builds the image; or name one that the nodes can pull with --image",
}


def demo(
    context: Annotated[
        str | None,
        typer.Option(
            help="A cluster of yours, by its context.", show_default=f"a kind cluster {NAME}, made for the demo"
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="REPO:TAG", help="A worker's image that the nodes can pull.", show_default="built from the checkout"
        ),
    ] = None,
    down: Annotated[bool, typer.Option("--down", help="Remove all that the demo has made.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Longest training in seconds.")] = 900,
) -> None:
    """Try rljob on Kubernetes, from a checkout: make a cluster with kind, build the image, install the operator, train CartPole
    to its verdict and draw its report.

    All of it is in the namespace rljob-demo, and the operator looks after no other. A cluster that has RLJobs already is
    refused, and so is a namespace or a kind cluster of this name that the demo has not made. After a failure or Ctrl-C the same
    command goes on.

    Examples:

        rljob demo

        rljob demo --context staging \\
            --image registry.example.com/rljob-worker:0.1.0

        rljob demo --down
    """
    with one_line_errors():
        cluster = Cluster(context)
        try:
            cluster.remove() if down else _train(cluster, image, timeout)
        except KeyboardInterrupt:
            typer.echo(f"interrupted; the same command goes on, `{cluster.down}` removes what was made", err=True)
            raise typer.Exit(130) from None


def _train(cluster: "Cluster", image: str | None, timeout_seconds: float) -> None:
    require_data_plane("rljob demo")
    from rljob_operator.verbs.cluster_jobs import ClusterJobs
    from rljob_operator.verbs.recorded import write_recorded

    repository, _, tag = (image or BUILT).rpartition(":")
    for wrong, words in (
        (not _CHART.is_dir(), f"there is no {_CHART} here: rljob demo works in the folder of a checkout of rljob"),
        (
            not repository or "/" in tag or "@" in repository,
            f"--image {image}: allowed: REPO:TAG, such as registry.example.com/team/rljob-worker:0.1.0",
        ),
        (
            image is None and cluster.kind is None,
            f"{cluster.context} is no kind cluster: push an image (docs/images.md) and name it with --image",
        ),
    ):
        if wrong:
            raise UsageError(words)
    cluster.require(*(() if image else ("kind", "docker or podman")))
    cluster.prepare()
    if image is None:
        builder = "docker" if shutil.which("docker") else "podman"
        with tempfile.TemporaryDirectory() as folder:  # kind finds images of Docker alone by their names
            _run(builder, "build", "--target", "worker-cpu", "-t", BUILT, ".", says="build the image")
            _run(builder, "save", "-o", f"{folder}/image.tar", BUILT, says="save it")
            _run("kind", "load", "image-archive", f"{folder}/image.tar", "--name", str(cluster.kind), says="load it")
    cluster.install(
        {
            "image": {"repository": repository, "tag": tag},
            "config": {"image": f"{repository}:{tag}"},
            "watchNamespaces": [NAME],
            "crds": {"keep": False},
            "replicas": 1,
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        }
    )
    with ClusterJobs(Place(NAME, cluster.context)) as jobs:
        if not cluster.get(CRDS[0], EXAMPLE, "-n", NAME):
            jobs.create(
                {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": EXAMPLE}, "spec": {"preset": PRESET}}
            )
        job = jobs.named(EXAMPLE)
        typer.echo(f"> train; `{job.command('top')}` shows more")
        shown: list[str] = []

        def over(seen: JobView) -> bool:
            lines = [line.rsplit(maxsplit=2)[0] for line in table([seen], wide=False)]  # without its times
            typer.echo("\n".join(line for line in lines if line not in shown[-2:]), nl=lines != shown)
            shown[:] = lines
            return seen.status.finished

        seen = wait_for(job, 0, over, "at its end", timeout_seconds)
        typer.echo(f"{job.place}: {ending(seen)}\n> draw the report; `{cluster.down}` removes all but that")
        (page,) = write_recorded(jobs, EXAMPLE, "", lambda said: typer.echo(said, err=True))
    typer.echo(f"report: {page}")
    raise typer.Exit(0 if seen.status.is_true("Complete") else EXIT_FAILURE)


class Cluster:
    """The one that the demo works on, and its objects there.

    Args:
        context: of the kubeconfig; None for a kind cluster of the demo's own.
    """

    def __init__(self, context: str | None) -> None:
        self.context, self._own = context or f"kind-{NAME}", context is None
        self.kind = self.context.removeprefix("kind-") if self.context.startswith("kind-") else None
        self.down = shlex.join(["rljob", "demo", *([] if self._own else ["--context", self.context]), "--down"])
        self._kubectl = ("kubectl", "--context", self.context)
        self._helm = ("--namespace", NAME, "--kube-context", self.context)

    def require(self, *more: str) -> None:
        """Raises UsageError, with what to do about each program that is not on the PATH."""
        needed = dict.fromkeys(("kubectl", "helm", *(("kind",) if self._own else ()), *more))
        missing = [each for each in needed if not any(map(shutil.which, each.split(" or ")))]
        if missing:
            raise UsageError("not on the PATH: " + "; ".join(f"{each} ({_REMEDIES[each]})" for each in missing))

    def get(self, *words: str) -> dict[str, Any]:
        """An object, or a list of objects; empty where there is none."""
        how = ("-o", "json", "--ignore-not-found", "--request-timeout=20s")
        return dict(json.loads(_run(*self._kubectl, "get", *words, *how, code=EXIT_UNAVAILABLE) or "{}"))

    def prepare(self) -> None:
        """Make the cluster and the namespace. Raises UsageError where either is not the demo's."""
        if self._own and not self._is_made():
            _run(
                *f"kind create cluster --name {NAME} --wait 2m --config -".split(),
                stdin=json.dumps(_KIND_CLUSTER),
                says="make the cluster",
            )
        if self._release() not in (None, NAME):
            raise UsageError(
                f"the cluster of context {self.context} has RLJobs already, so nothing is installed: "
                f"`rljob run {EXAMPLE} -n NAMESPACE --context {self.context} --wait` trains there"
            )
        if not self._has_namespace():
            _run(*self._kubectl, "create", "-f", "-", stdin=json.dumps(_NAMESPACE), says="make the namespace")

    def install(self, values: dict[str, Any]) -> None:
        """The operator. A release that was killed halfway is removed first: Helm would not touch it again."""
        releases = self.get("secrets", "-n", NAME, "-l", "owner=helm,status!=superseded").get("items", ())
        if {each["metadata"]["labels"]["status"] for each in releases} - {"deployed"}:
            self._refuse_others()
            _run("helm", "uninstall", NAME, "--wait", *self._helm, says="remove half an operator")
        _run(
            *f"helm upgrade --install {NAME} {_CHART} --wait --timeout 6m --values -".split(),
            *self._helm,
            stdin=json.dumps(values),
            says="install the operator",
        )

    def remove(self) -> None:
        """All of it, in an order in which the operator ends its jobs itself."""
        self.require()
        if self._own and self._is_made():
            if not self.get("nodes", "-l", MARK).get("items"):
                raise UsageError(
                    f"rljob demo has not made the kind cluster {NAME}: --context {self.context} removes the demo from it"
                )
            _run("kind", "delete", "cluster", "--name", NAME, says="delete the cluster")
            return
        crds, there = not self._own and self._refuse_others(), not self._own and self._has_namespace()
        if not (crds or there):
            typer.echo(f"there is nothing of rljob demo in the cluster of context {self.context}")
        for wanted, says, words in (
            (
                crds and there,
                "delete its jobs",
                (*self._kubectl, "delete", ",".join(CRDS), "--all", "-n", NAME, "--timeout=3m"),
            ),
            (there, "remove the operator", ("helm", "uninstall", NAME, "--ignore-not-found", "--wait", *self._helm)),
            (there, "delete the namespace", (*self._kubectl, "delete", "namespace", NAME, "--timeout=5m")),
            (crds, "delete the CRDs", (*self._kubectl, "delete", "crd", *CRDS, "--ignore-not-found", "--timeout=1m")),
        ):
            if wanted:
                _run(*words, says=says)

    def _refuse_others(self) -> bool:
        """Whether the CRDs are the demo's. Raises UsageError where they can't go without jobs of others."""
        if self._release() != NAME:
            return False
        items = self.get(",".join(CRDS), "-A").get("items", ())
        if others := sorted({each["metadata"]["namespace"] for each in items} - {NAME}):
            raise UsageError(
                f"namespace {others[0]} has RLJobs, which would go with the demo's CRDs: delete them first"
            )
        return True

    def _is_made(self) -> bool:
        return NAME in _run("kind", "get", "clusters").split()

    def _has_namespace(self) -> bool:
        found = self.get("namespace", NAME)
        if found and MARK not in found["metadata"]["labels"]:
            raise UsageError(f"rljob demo has not made namespace {NAME} of context {self.context}, and leaves it alone")
        return bool(found)

    def _release(self) -> str | None:
        """The namespace of the release that has brought the CRD; empty where no release has, None without a CRD."""
        found = self.get("crd", CRDS[0])
        return found["metadata"].get("annotations", {}).get("meta.helm.sh/release-namespace", "") if found else None


def _run(*words: str, says: str = "", stdin: str | None = None, code: int = EXIT_FAILURE) -> str:
    """Run a command; what it prints, or with ``says`` its user sees that. Raises CommandRefused with ``code``."""
    if says:
        typer.echo(f"> {says}: {shlex.join(words)}")
    done = subprocess.run(
        words,
        input=stdin,
        text=True,
        stdout=subprocess.PIPE
        if not says
        else subprocess.DEVNULL
        if words[0] == "helm"
        else None,  # which prints notes
        stderr=None if says else subprocess.PIPE,
    )
    if done.returncode:
        why = (done.stderr or f"exit code {done.returncode}; its reason is above").strip().rpartition("\n")[2]
        raise CommandRefused(f"could not {says or f'ask `{shlex.join(words)}`'}: {why}", code)
    return done.stdout or ""
