"""The crash harness: a broker that is killed, clients that remember, and what must hold."""
