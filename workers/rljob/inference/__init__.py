"""Central inference: actors send observations, a server evaluates the network for all of them in batches."""
