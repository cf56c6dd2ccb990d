"""The Kubernetes substrate: a job's members are pods."""
