"""The commands, each in a module or package of its name.

Handles: their options, their requests to a broker or a store, and their output.
Does not handle: connections and formatting, which commands share; see ``cli``.
"""
