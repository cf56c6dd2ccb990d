"""What members answer when asked: learners and replay shards of a cluster, and the processes of one machine."""
