"""Simulated clusters of several partitions, with whole brokers, routers and forwarders."""
