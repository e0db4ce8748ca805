"""The commands: one module or package each, named as the command is.

Handles: their options, what they ask of a broker or a store, and what they print.
Does not handle: connecting and output, which the commands share; see ``cli``.
"""
