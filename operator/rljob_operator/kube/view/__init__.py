"""A cluster's job as a verb sees it: its state, its events, its logs."""
