"""The checks of the project: what belongs to which tier, and how the steps are run."""
