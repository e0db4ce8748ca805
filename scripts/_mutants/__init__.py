"""Mutants of the synchronous code: the changes, the tests that must notice them, and the results.

Handles: the sites of a change, the sample, the trace of lines by test, the runs. Not: the command
line, which is ``scripts/mutants.py``.
"""
