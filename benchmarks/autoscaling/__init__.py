"""Parts of the autoscaler's simulation."""
