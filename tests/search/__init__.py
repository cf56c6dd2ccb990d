"""A bounded search over what may happen to a small job on a cluster, breadth first over distinct states.

`python -m tests.search` explores; docs/testing-on-kubernetes.md says how to read what it finds. A state (`world`) is a tuple of
plain values: the pods as the API server has them, and what the operator has stored, remembers, has not seen yet and has still to
do. The core decides in it as it is (`core.turn`), from members that `kube.job.members` makes of those pods. Everything around is
a model of what `kube.job.reconcile` and a cluster do.
"""
