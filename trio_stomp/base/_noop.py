"""A callback without effect."""


def noop(*arguments: object) -> None:
    """Do nothing: the default of a callback, and the action of a mere wake-up."""
