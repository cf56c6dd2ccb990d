"""Verbs for a run on this machine or a cluster's job, from any terminal: look at it, change it, end it."""
