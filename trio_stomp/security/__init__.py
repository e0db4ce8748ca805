"""Who may come in: users and their passcodes, tokens, certificates' names, and how often one
may try. What they may do once inside is the core's (``broker``)."""
