"""What members say of themselves when asked: learners and replay shards, at their pods or through the API server."""
