"""Test suites of other projects, run against brokers."""
