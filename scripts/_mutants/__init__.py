"""Mutants of the synchronous code: what is changed, which tests must notice, and whether they did.

Handles: the sites of a change, the sample, the trace of lines by test, the runs. Not: the command
line, which is ``scripts/mutants.py``.
"""
