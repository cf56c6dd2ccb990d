"""How the verbs are asked from a program that may run an event loop, as a notebook's kernel does: on a thread of their own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from rljob_operator.verbs.jobs import Place
from rljob_operator.verbs.options import jobs_of


@contextmanager
def asking_jobs(place: Place) -> Iterator[Callable[[Callable[[Any], Any]], Any]]:
    """Gives ``ask(work)``: what ``work`` answers or raises, given the `Jobs` of ``place``; of a cluster `ClusterJobs`, with one
    login for all that is asked.

    Ctrl-C gives up waiting for an answer; what was asked then comes to its end by itself.
    """
    with ExitStack() as stack:
        thread = ThreadPoolExecutor(1, "rljob-verb")
        stack.callback(thread.shutdown, wait=False)
        jobs_open = ExitStack()
        stack.callback(thread.submit, jobs_open.close)
        jobs = thread.submit(lambda: jobs_open.enter_context(jobs_of(place))).result()
        yield lambda work: thread.submit(work, jobs).result()
