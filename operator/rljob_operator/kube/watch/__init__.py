"""What changes on a cluster: RLJobs, pods and nodes are watched, and keys that want a look are queued."""
