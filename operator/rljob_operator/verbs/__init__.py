"""Verbs for a run on this machine, from any terminal: look at it, change it, end it."""
