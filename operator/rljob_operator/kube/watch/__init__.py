"""What changes on a cluster: RLJobs, pods and nodes are watched, and keys of jobs to reconcile are queued."""
