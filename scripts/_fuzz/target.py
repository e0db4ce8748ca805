"""Fuzz targets, and helpers that make their inputs."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from attrs import frozen


class Finding(AssertionError):
    """A check of a target failed. Any other exception from a target is a finding, too."""


@frozen
class Target:
    """A kind of external input, and the code that parses it.

    Args:
      name: Its name on the command line.
      run: Processes an input. Raises only for a finding.
      files: Source files whose lines are to be covered, below ``trio_stomp/``.
      generate: Creates an input, which is usually well-formed.
      dictionary: Strings that are significant to the code.
      max_bytes: The longest input.
    """

    name: str
    run: Callable[[bytes], None]
    files: Sequence[str]
    generate: Callable[[random.Random], bytes]
    dictionary: Sequence[bytes]
    max_bytes: int = 4096


def check(is_right: bool, what: object) -> None:
    """Raise a Finding with the text ``what`` unless ``is_right``."""
    if not is_right:
        raise Finding(str(what))


def check_equal(found: object, expected: object, what: str) -> None:
    """Raise a Finding with both values unless they are equal."""
    if found != expected:
        raise Finding(f"{what}: {found!r:.600} is not {expected!r:.600}")


def cut(data: bytes) -> tuple[bytes, list[list[bytes]]]:
    """Split an input at the positions given by its first byte.

    Returns: the rest of the input, and the ways of feeding it.
    """
    if not data:
        return b"", [[b""]]
    seed, rest = data[0], data[1:]
    chance = random.Random(seed)
    places = sorted(chance.randrange(len(rest) + 1) for _ in range(1 + seed % 7))
    borders = [0, *places, len(rest)]
    ways = [[rest[a:b] for a, b in pairwise(borders)]]
    if len(rest) <= 600 or seed % 8 == 0:
        ways.append([rest[i : i + 1] for i in range(len(rest))])
    return rest, ways


def pick_bytes(chance: random.Random, *, most: int = 12) -> bytes:
    """Return some bytes, mostly few."""
    return chance.randbytes(chance.choice((0, 1, 2, chance.randrange(most + 1))))
