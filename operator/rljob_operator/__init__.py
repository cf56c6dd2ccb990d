"""The controller: observe, decide, apply, report; one core for local processes and (next) Kubernetes."""
