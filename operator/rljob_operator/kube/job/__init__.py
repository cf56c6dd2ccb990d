"""One job on a cluster: from what is stored of it and its pods to the core's decision, which is then carried out."""
