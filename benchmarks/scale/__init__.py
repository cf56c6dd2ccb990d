"""The data plane at the size of a cluster: hundreds of real sockets with CURVE on one machine, no environment. A module a row."""
