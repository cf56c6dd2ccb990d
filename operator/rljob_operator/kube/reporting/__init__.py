"""What the operator tells: events, metrics, health."""
