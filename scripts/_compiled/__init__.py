"""Makes the compiled variant of the broker from the same sources: docs/inside/performance.md."""
