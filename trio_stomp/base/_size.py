"""Sizes for people."""

_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def rounded_size(count: float) -> str:
    """Return a number of bytes in the largest fitting unit: 512 B, 1.5 KiB, 300 MiB."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:,.1f}".removesuffix(".0") + f" {name}"
    return f"{count:,.0f} B"
