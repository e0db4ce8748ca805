"""The crash harness: a broker that is killed, clients that record, and the promises to check."""
