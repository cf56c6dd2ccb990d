"""The Kubernetes substrate: a job's members are pods. ``render/`` builds the objects, the other rooms read and change them."""
