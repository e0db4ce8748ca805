"""Helpers that tests share: a core without a server, clients, listeners, stores, certificates."""
