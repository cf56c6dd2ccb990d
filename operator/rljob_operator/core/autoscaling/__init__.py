"""The autoscaler: a pure function from the learner's figures to a number of actors. See ``docs/autoscaling.md``."""
