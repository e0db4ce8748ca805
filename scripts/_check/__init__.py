"""The checks of the project: the steps of each tier, and how they run."""
