"""What members say of themselves when asked: learners and replay shards of a cluster, and the processes of one machine."""
