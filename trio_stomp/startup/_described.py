"""The settings and policies in force, with the source of each, for the management interface."""

from collections.abc import Iterator

from attrs import asdict

from trio_stomp.config import Settings, Source, options, policy_book, shown

Record = dict[str, object]


def described_settings(settings: Settings) -> list[Record]:
    """Return a record of each option, in the order of the settings file."""
    return [
        {
            "group": spec.group,
            "name": spec.name,
            "value": shown(getattr(getattr(settings, spec.group), spec.name)),
            "default": shown(spec.default),
            **_source(settings, spec.name),
            "live": spec.live,
            "help": spec.help,
        }
        for spec in options()
    ]


def described_policies(settings: Settings) -> Iterator[Record]:
    """Yield a record of each policy in its order, and of the defaults, whose pattern is ""."""
    for pattern, policy in settings.destinations:
        yield {"pattern": pattern, **_source(settings, pattern), "policy": asdict(policy)}
    yield {"pattern": "", **_source(settings, ""), "policy": asdict(policy_book(settings).default)}


def _source(settings: Settings, name: str) -> Record:
    """Return where a value comes from; a program may have given it without a source."""
    source = settings.sources.get(name, Source())
    return {"source": f"{source}", "kind": source.kind}
