"""Options by name and text, as a command line or a file gives them."""

import random

from _fuzz.target import Target, check, check_equal
from trio_stomp.base._errors import OptionError
from trio_stomp.config import Settings, build, from_text, options

SPECS = {spec.name: spec for spec in options()}
NAMES = tuple(SPECS)
VALUES = (
    *(b"0", b"1", b"-1", b"true", b"FALSE", b"yes", b"1.5", b"nan", b"inf", b"1e400", b"", b" 1"),
    *(b"1_000", b"0x10", b"9" * 20, b"9" * 5000, b"\xd9\xa1", b"auto", b"header", b"seed", b"*"),
    *(
        b"drop-oldest",
        b"reject",
        b"stompica",
        b"/tmp/x",
        b"\0",
        b"\xff",
        b"65536",
        b"native",
        b"1,2",
    ),
)


def make(name: str) -> Target:
    """The target."""
    words = (*VALUES, *(b"\n%b=" % each.encode() for each in NAMES), b"=", b"\n")
    files = ("config/_load.py", "config/_settings.py", "base/_option.py")
    return Target(name, run, files, generate, words, 8192)


def generate(chance: random.Random) -> bytes:
    """Return some options with values, sometimes of the right kind."""
    lines = []
    for _ in range(chance.randint(1, 4)):
        spec = SPECS[chance.choice(NAMES)]
        value = chance.choice(VALUES)
        if chance.random() < 0.3:
            value = str(spec.default).encode()
        elif spec.choices and chance.random() < 0.7:
            value = chance.choice(spec.choices).encode()
        lines.append(spec.name.encode() + b"=" + value)
    return b"\n".join(lines)


def run(data: bytes) -> None:
    """Read and compose lines of ``name=text``, and check the result."""
    values: dict[str, object] = {}
    raw: dict[str, object] = {}
    for line in data.decode(errors="surrogateescape").split("\n"):
        name, _, text = line.partition("=")
        raw[name] = text
        if name not in SPECS:
            values[name] = text
            continue
        try:
            values[name] = from_text(SPECS[name], text)
        except OptionError as error:
            judge(error, name)
    settings = compose(values)
    if settings is not None:
        for name, value in values.items():
            group = getattr(settings, SPECS[name].group)
            check_equal(getattr(group, name), value, f"value of {name}")
        check_equal(build(values), settings, "built again")
    compose(raw)  # text where a number should be
    compose(dict.fromkeys(raw, None))
    compose(dict.fromkeys(raw, True))


def compose(values: dict[str, object]) -> Settings | None:
    """Return the settings, or None if they are refused."""
    try:
        return build(values)
    except OptionError as error:
        judge(error, "")
        return None


def judge(error: OptionError, name: str) -> None:
    """Check that an error is one line that names the option."""
    text = str(error)
    check(name in text, f"nameless: {text!r:.200}")
    check("\n" not in text, f"lines: {text!r:.200}")
