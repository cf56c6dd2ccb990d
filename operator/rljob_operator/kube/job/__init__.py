"""One job on a cluster: from what is stored of it and its pods to a turn of the core, and what the turn decided carried out."""
