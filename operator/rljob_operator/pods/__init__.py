"""How a role's pod comes about: pure functions on pods as plain mappings, which need no cluster."""
