"""The Kubernetes substrate: a job's members are pods. ``render/`` says what objects look like, everything else moves them."""
