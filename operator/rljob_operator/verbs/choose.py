"""Which jobs a verb is about: runs on this machine, or a cluster's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rljob_operator.verbs.jobs import Jobs, Place


class Meaning:
    """Whether verbs mean a cluster where no place is named: set once, by `kubectl rljob`."""

    cluster = False


@contextmanager
def jobs_of(place: Place) -> Iterator[Jobs]:
    """The jobs of a place, until the verb is done. What talks to a cluster is loaded where it is needed alone."""
    if not (Meaning.cluster or any(place)):
        from rljob_operator.verbs.local_jobs import LocalJobs

        yield LocalJobs()
        return
    from rljob_operator.verbs.cluster_jobs import ClusterJobs

    with ClusterJobs(place, plugin=Meaning.cluster) as jobs:
        yield jobs
