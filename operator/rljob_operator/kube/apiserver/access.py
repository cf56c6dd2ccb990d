"""Where the API server is and how to log in there: from a kubeconfig, or as the pod that this process runs in."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import InClusterConfigLoader
from kubernetes.aio.config.kube_config import KubeConfigMerger
from yaml import YAMLError

log = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RENEWED_AT_MOST_EVERY_SECONDS = 10.0


class NoAccess(Exception):
    """No API server is configured, or its configuration can't be used or lacks a right. ``str()`` says what to do."""


@dataclass(slots=True)
class Access:
    """The library's configuration for one API server, and the namespace that counts where the caller names none.

    A token in a pod is read anew every minute by the library. ``renew`` is for one that the server has refused.
    """

    configuration: Configuration
    namespace: str
    _kubeconfig: str | None
    _context: str | None
    _steady: Callable[[], float] = time.monotonic
    _renewed: float = float("-inf")

    async def renew(self) -> None:
        """Read the credentials anew, unless that was just now; where they can't be read, those in use stay.

        Only a token can be replaced in this way: a new client certificate needs a new process.
        """
        now = self._steady()
        if now - self._renewed < RENEWED_AT_MOST_EVERY_SECONDS:
            return
        self._renewed = now
        try:
            fresh = await load_access(self._kubeconfig, self._context)
        except NoAccess as problem:
            log.warning("%s", problem)
            return
        self.configuration.api_key = fresh.configuration.api_key
        self.configuration.refresh_api_key_hook = fresh.configuration.refresh_api_key_hook

    async def token(self) -> str | None:
        """The bearer token in use, without ``Bearer``; None where the login is by certificate."""
        held = await self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return held.split(" ", 1)[-1].strip() if held else None


async def load_access(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """The access that a user means: the file given, else ``$KUBECONFIG``, else the pod's own, else ``~/.kube/config``.

    Raises:
        NoAccess: none of them is there, or the one that counts can't be read.
    """
    configuration = Configuration()
    named = kubeconfig or os.environ.get("KUBECONFIG")
    in_a_pod = not named and context is None and (SERVICE_ACCOUNT / "token").is_file()
    path = named or str(Path.home() / ".kube" / "config")
    try:
        if in_a_pod:
            loader = InClusterConfigLoader(str(SERVICE_ACCOUNT / "token"), str(SERVICE_ACCOUNT / "ca.crt"))  # type: ignore[no-untyped-call]
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
            namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
            configuration.proxy = None  # of the variables; the cluster's own address is reached from a pod without one
        else:
            if not any(Path(one).expanduser().is_file() for one in path.split(os.pathsep) if one):
                raise NoAccess(f"there is no kubeconfig at {path}: name one with --kubeconfig or KUBECONFIG")
            current, known = _contexts(path)
            if (context := context or current) not in known:
                there = (
                    f"there are: {', '.join(known)}" if known else "name another file with --kubeconfig or KUBECONFIG"
                )
                raise NoAccess(f"{path} has no context{f' {context}' if context else ' that is current'}; {there}")
            loader = await load_kube_config(  # type: ignore[no-untyped-call]
                path, context, configuration, persist_config=False
            )
            namespace = loader.current_context["context"].get("namespace", "default")
            configuration.proxy = configuration.proxy or _proxy_of_environment(configuration.host)
    except (ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError, YAMLError) as problem:
        where = str(SERVICE_ACCOUNT) if in_a_pod else path
        said = (
            "it is no kubeconfig" if isinstance(problem, TypeError | AttributeError) else " ".join(str(problem).split())
        )
        raise NoAccess(f"the access to the cluster can't be read from {where}: {said}") from problem
    configuration.connection_pool_maxsize = 100
    configuration.client_session_kwargs = {"trust_env": False}
    return Access(configuration, namespace or "default", kubeconfig, context)


def _proxy_of_environment(url: str) -> str | None:
    """The proxy that HTTPS_PROXY and similar variables name for this address, unless NO_PROXY excludes it.

    Looked up once: aiohttp would do so on a thread before every call, and look for a netrc on another, which is a third of what a
    call costs. A netrc is for other programs' passwords; an API server's token beside one would be refused.
    """
    parts = urlsplit(url)
    return None if not parts.hostname or proxy_bypass(parts.hostname) else getproxies().get(parts.scheme)


def _contexts(path: str) -> tuple[str, list[str]]:
    """The current context of a kubeconfig, or of several of which the first that names one counts, and all there are. An unused
    file of kubectl's has null in place of both."""
    merger = KubeConfigMerger(path)  # type: ignore[no-untyped-call]
    current = (each.get("current-context") for each in merger.config_files.values())
    return next(filter(None, current), ""), [str(each["name"]) for each in merger.config.value["contexts"]]
