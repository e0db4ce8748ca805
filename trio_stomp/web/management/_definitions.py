"""Export and import of definitions: created queues, policies, durable subscriptions."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from attrs import asdict, define

from trio_stomp.base import LOOKS, RECORDS, Pieces, ProtocolError, slices
from trio_stomp.broker import DestinationPolicy, Queue, Task, queue_of
from trio_stomp.web._query import NOT_KEPT, Answer, Query, Record, as_json
from trio_stomp.web._site import ADMIN
from trio_stomp.web.declared import COUNT, FLAG, OBJECT, OF_BODIES, TEXT, TEXTS, Word
from trio_stomp.web.management._core import Core
from trio_stomp.web.management.requests import Endpoint, Stepwise, http_error, record

if TYPE_CHECKING:
    from trio_stomp.broker import Binding
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

Parsed = tuple[list[str], Mapping[str, object], list[Record]]
"""The names of queues, the policies, and the durable subscriptions."""
VERSION = 1
MAX_BYTES = 1024 * 1024
FORMAT = Word("format", "the form of the answer", choices=("json", "toml"))
DRY_RUN = Word("dry_run", "1 = change nothing, show what would change", choices=("0", "1"))
TOML = "application/toml"
MAX_DEPTH = 64
MAX_WORDS = 8
_QUOTED = re.compile(
    r'"""(?:\\.|(?!""")[^\\])*+(?:""")?' + r"|'''(?:(?!''').)*+(?:''')?"
    r'|"(?:\\.|[^"\\\n])*+"?' + r"|'[^'\n]*+'?|#[^\n]*+",
    re.DOTALL,
)
"""Texts and comments, also those that do not end: no text is looked at twice."""
_KEY = re.compile(r"[^\[\]{},\n]+")
"""A key, with its value if that is no list."""
_DEFAULTS = asdict(DestinationPolicy())


@define(eq=False, repr=False)
class Definitions:
    """The requests about definitions."""

    server: "Server"
    core: Core
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint(
            name="definitions",
            summary="Export the created queues, the policies, and the durable subscriptions.",
            parameters=(FORMAT,),
            answer={
                "version": COUNT,
                "queues": {"type": "array", "items": record({"name": TEXT})},
                "policies": OBJECT,
                "durables": {"type": "array", "items": OBJECT},
            },
            errors=("too-large",),
            build=self.export,
        )
        yield Endpoint(
            name="definitions",
            summary="Import definitions: create the queues, and show which policies and durable"
            " subscriptions differ. Policies belong in the settings files, and durable"
            " subscriptions are made by their subscribers.",
            rights=ADMIN,
            parameters=(DRY_RUN,),
            answer={
                "dry_run": FLAG,
                **dict.fromkeys(("created", "existing", "policies", "durables"), TEXTS),
            },
            errors=(*OF_BODIES, "invalid-definitions", "invalid-destination"),
            as_send=True,
            method="POST",
            operate=self.adopt,
            body={"application/json": "definitions as exported", TOML: "the same as TOML"},
        )

    def export(self, query: Query) -> Pieces[Answer]:
        """Return the created queues, policies and durable subscriptions, as JSON or TOML.

        Raises:
          HttpError: They are too long for an import.
        """
        in_toml = query.word(FORMAT) == "toml"
        queues: list[str] = []
        durables: list[Record] = []
        yield
        statistics = self.server.broker.statistics()
        for some in slices(list(statistics.destinations), LOOKS):
            found = map(queue_of, some)
            queues += [each.name for each in found if each is not None and each.is_declared]
            yield
        size = sum(map(len, queues))
        for part in slices(list(statistics.durables), RECORDS):
            more = [self._durable(each) for each in part if each.is_counted]
            durables += more
            size += len(json.dumps(more))
            if size > MAX_BYTES:
                break
            yield
        if size > MAX_BYTES:
            text = f"the definitions have over {MAX_BYTES} bytes, which is the limit of an import"
            raise http_error("too-large", text)
        fields: Record = {
            "version": VERSION,
            "queues": [{"name": name} for name in sorted(queues)],
            "policies": self._policies(),
            "durables": durables,
        }
        return as_toml(fields, self.core.as_toml) if in_toml else as_json(fields)

    def _policies(self) -> dict[str, Record]:
        """Return the fields of each policy that differ from the defaults."""
        found: dict[str, Record] = {}
        for each in self.core.policies():
            policy = each["policy"]
            assert isinstance(policy, dict)
            if each["pattern"]:
                found[f"{each['pattern']}"] = {
                    name: list(value) if isinstance(value, tuple) else value
                    for name, value in policy.items()
                    if value != _DEFAULTS[name]
                }
        return found

    def _durable(self, binding: "Binding") -> Record:
        fields = self.figures.subscription(binding)
        names = ("name", "client_id", "owner", "destination", "no_local")
        return {**{name: fields[name] for name in names}, "selector": binding.selector_text}

    def adopt(self, query: Query) -> Stepwise[Task]:
        """Return the operation that imports definitions, or only shows the differences.

        In a cluster, it ignores what belongs to other brokers.
        """
        is_dry, manager = query.word(DRY_RUN) == "1", self.core.manager
        in_toml = TOML.encode() in query.request.tokens(b"content-type")
        differences: Record = {}

        def begin(_identity: object, given: Parsed) -> Task:
            queues, policies, durables = given
            broker = self.server.broker
            queues = [name for name in queues if not broker.lacks(name)]
            durables = [
                each
                for each in durables
                if broker.counts(f"{each.get('destination', '')}".split(","))
            ]
            existing = [name for name in queues if _is_declared(manager.queues.find(name))]
            differences["existing"] = existing
            differences["created"] = [name for name in queues if name not in set(existing)]
            mine = self._policies()
            differences["policies"] = sorted(
                name for name in {**mine, **policies} if mine.get(name) != policies.get(name)
            )
            known = {json.dumps(self._durable(each)) for each in manager.left.bindings.durables}
            differences["durables"] = sorted(
                f"{each.get('name')}" for each in durables if json.dumps(each) not in known
            )
            task = manager.create(*queues)  # checks the names
            return manager.create() if is_dry else task

        return Stepwise(
            server=self.server,
            query=query,
            rights=ADMIN,
            parse=partial(read_definitions, in_toml=in_toml),
            begin=begin,
            result=lambda _task: {"dry_run": is_dry, **differences},
            event="definitions",
            detail=lambda task: f"{task.done} queues created",
            max_body_bytes=MAX_BYTES,
        )


def as_toml(fields: Record, value: Callable[[object], str]) -> Answer:
    """Return definitions as an answer in TOML.

    Args:
      fields: The definitions.
      value: Returns a value as TOML.
    """
    lines = [f"version = {fields['version']}"]

    def add(head: str, record: Mapping[str, object]) -> None:
        lines.extend(["", head, *(f"{name} = {value(each)}" for name, each in record.items())])

    for queue in _records(fields["queues"]):
        add("[[queues]]", queue)
    policies = fields["policies"]
    assert isinstance(policies, dict)
    for pattern, policy in policies.items():
        add(f"[policies.{value(pattern)}]", policy)
    for durable in _records(fields["durables"]):
        add("[[durables]]", durable)
    text = "\n".join(lines) + "\n"
    return 200, (("Content-Type", TOML), *NOT_KEPT), text.encode()


def _records(value: object) -> Sequence[Record]:
    assert isinstance(value, list)
    return value


def read_definitions(body: bytes, *, in_toml: bool) -> Parsed:
    """Parse exported definitions. A thread does it, as it may take long.

    Args:
      body: The exported text.
      in_toml: Whether the text is TOML; otherwise it is JSON.

    Returns:
      The names of the queues, the policies, and the durable subscriptions.

    Raises:
      ProtocolError: ``body`` has no definitions of this version.
    """
    try:
        text = body.decode()
        _check_shape(text)
        found = tomllib.loads(text) if in_toml else json.loads(text)
        # Neither lone surrogates nor values that JSON lacks, such as dates.
        json.dumps(found, ensure_ascii=False).encode()
        is_known = found["version"] == VERSION
        queues = [each["name"] for each in found.get("queues", [])]
        policies, durables = dict(found.get("policies", {})), list(found.get("durables", []))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _invalid(f"{error}") from None
    if not is_known or not all(isinstance(each, dict) for each in durables):
        raise _invalid(f"the version is {found['version']!r}")
    if not all(isinstance(each, str) and "\0" not in each for each in queues):
        raise _invalid("the name of a queue is no text, or has a NUL")
    return list(dict.fromkeys(queues)), policies, durables


def _check_shape(text: str) -> None:
    """Check that parsing takes linear time, and no deep stack.

    Raises:
      ValueError: It is nested too deeply, or a key has too many words.
    """
    bare = _QUOTED.sub(lambda _: "s", text)  # a function lets other threads run
    depths = accumulate(1 if each in "[{" else -1 for each in bare if each in "[{}]")
    if max(depths, default=0) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    keys = (found[0].partition("=")[0] for found in _KEY.finditer(bare))
    if any(key.count(".") >= MAX_WORDS for key in keys):
        raise ValueError(f"a key has more than {MAX_WORDS} words")


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(
        "invalid-definitions",
        f"the body has no definitions of version {VERSION}: {why[:200]}; GET definitions shows the"
        " form",
    )


def _is_declared(queue: Queue | None) -> bool:
    return queue is not None and queue.is_declared
