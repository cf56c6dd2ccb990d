"""The operator's process: its wiring, its Lease, its configuration, what it may ask for, and its end."""
