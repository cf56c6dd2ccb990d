"""Environments whose pictures a frozen network turns into features before anything else sees them."""
