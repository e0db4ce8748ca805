"""A cluster on this machine: three servers of NATS and three nodes, to be killed."""
