"""Groups of exceptions that a nursery of ours makes, and callers must not see."""


def sole(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only exception of a group, or the group, to hide one nursery."""
    return group.exceptions[0] if len(group.exceptions) == 1 else group


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception within groups of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only exception within groups of groups, to hide several nurseries."""
    error = sole(group)
    while error is not group and isinstance(error, BaseExceptionGroup):
        group, error = error, sole(error)
    return error
