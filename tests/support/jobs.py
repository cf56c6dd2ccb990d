"""Jobs by their spec alone."""

from typing import Any

from rljob.api import RLJob, parse_job


def manifest_of(spec: dict[str, Any], name: str = "test") -> dict[str, Any]:
    """The manifest with ``spec``, as a user would write it."""
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": name}, "spec": spec}


def job_of(spec: dict[str, Any], name: str = "test") -> RLJob:
    """The job that it asks for."""
    return parse_job(manifest_of(spec, name))
