"""One experiment on a cluster: its journal, its runs as RLJobs, the pods that judge them, its status."""
