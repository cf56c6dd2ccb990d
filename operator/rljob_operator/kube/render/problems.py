"""Why no pod can be made of what a job says."""


class PodProblem(ValueError):
    """A role's fields contradict what the operator needs of its pods; ``str()`` says where and why."""
