"""The commands: one module or package for each, with the command's name.

Handles: their options, their requests to a broker or a store, and their output.
Does not handle: connections and formatting, which the commands share; see ``cli``.
"""
