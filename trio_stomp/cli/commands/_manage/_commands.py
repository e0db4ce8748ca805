"""The commands that look into a broker and change it: each is a row of one table."""

from collections.abc import Mapping
from types import MappingProxyType

from attrs import evolve

from trio_stomp.cli._command import Argument, Command
from trio_stomp.cli.commands._manage import _cancel, _definitions, _kinds
from trio_stomp.cli.commands._manage._arguments import (
    BACK_TO,
    CHOICE,
    CLIENT_ID,
    COUNT,
    DEAD,
    DESTINATION,
    DURABLE,
    EXACT,
    FIRST,
    FIRST_TIME,
    OF_SESSION,
    ORIGIN,
    OTHER,
    OWNER,
    POINTS,
    QUEUE,
    SESSION,
    STREAM,
    TO,
    TOPIC,
    USER,
    tool,
)
from trio_stomp.cli.commands._manage._change import Change, Record
from trio_stomp.cli.commands._manage._dead import list_dead
from trio_stomp.cli.commands._manage._explain import ARGUMENTS as EXPLAIN
from trio_stomp.cli.commands._manage._explain import EPILOG as EXPLAIN_EPILOG
from trio_stomp.cli.commands._manage._explain import explain
from trio_stomp.cli.commands._manage._history import EPILOG as HISTORY
from trio_stomp.cli.commands._manage._history import show_history
from trio_stomp.cli.commands._manage._messages import Look, of_dead_letter, of_message

OF_ADMIN = "It needs the right admin at DIAG.\n"
OF_OWNER = """\
Users list and end their own; for those of others it needs the rights monitor and admin at DIAG.
"""
STAYS = """\
Unacknowledged messages, those that wait for their redelivery, and those that arrive meanwhile
stay. Ctrl-C ends it; what was done before stays done.
"""
PEEK = """\
Nothing is consumed, and nothing is marked as redelivered. Unacknowledged messages are not shown.
It needs the right to browse the queue.
"""
CREATE = """\
A queue exists from its first use. One that was created stays without messages and consumers, until
it is deleted. It needs the right create.
"""
DELETE = f"""\
A queue that has messages or consumers is refused, unless --force: then its messages are purged and
the connections of its consumers closed. {OF_ADMIN}"""
PURGE = f"""\
{STAYS}It needs the right to receive from the queue.
"""
MOVE = f"""\
Messages keep their headers, except for the destination, and their order. A stored message is in
one of the two queues at any time. It ends at the first message for which TO has no room.
{STAYS}It needs the right to receive from QUEUE and to send to TO.
"""
REDELIVER = f"""\
Unacknowledged messages return to the queue, and consumers get them again. {OF_ADMIN}"""
PAUSE = f"""\
A paused queue accepts messages, and those already delivered can be acknowledged. It is paused until
it is resumed, or the broker restarts. {OF_ADMIN}"""
CLOSE = f"""\
The client gets an ERROR with the code closed-by-operator, and what it had not acknowledged goes to
others. It may connect again. {OF_ADMIN}"""
RELOAD = f"""\
It reads settings, users, rules and certificates, as at SIGHUP. If one file is wrong, nothing
changes. {OF_ADMIN}"""
DLQ = """\
QUEUE is the original destination: orders and /queue/orders mean the dead letters in
/queue/DLQ.orders, /topic/prices those in /queue/DLQ.topic/prices; /queue/DLQ.orders works, too.
With --exact QUEUE is the dead-letter queue itself, for policies that name another.

retry sends each message to its original destination, or to --to, and removes it from the
dead-letter queue at the same moment, so no message is lost or duplicated. Headers are kept, except
those about the dead letter. Messages that fail again while it runs stay, and so do those that have
no original destination, no room there, or no right to be sent there by you.
"""
CLEAR = "had no last value"
CLEARED = """\
New subscribers do not get the last value any more; subscribers get no message. It needs the right
to send to TOPIC, as SEND with retain:remove does.
"""
SUBS = f"""\
A durable subscription stores a topic's messages while its subscriber is away
(docs/use/durable-subscriptions.md). NAME is the name from SUBSCRIBE. If several have it, name the
client id, the owner or the destination as well. rm ends it permanently and drops its stored
messages; a connected subscriber continues until it leaves. {OF_OWNER}"""
SCHEDULED = f"""\
Messages sent with AMQ_SCHEDULED_DELAY and similar headers wait in the broker, even when their
sender has left (docs/use/scheduling.md). An ID is shown by ls and by the RECEIPT of the SEND
(scheduledJobId): 17, or 17-20. {OF_OWNER}"""


def _retried(result: Record) -> str:
    left = (f"{result['queue']}: {count} stay: {why}" for why, count in result["left"].items())
    return "\n".join([f"{result['queue']}: {result['sent']:,} sent again", *left])


def _reloaded(result: Record) -> str:
    who = f"node {result['node']}" if result["node"] else "the broker"
    lines = [f"{who} has read its files again: {result['total']:,} changes"]
    if result["node"]:
        lines.append("the other nodes of the cluster have not: ask each of them")
    for each in result["changes"]:
        where = f"[{each['group']}] {each['name']}".rstrip()
        restart = "" if each["is_live"] else " (takes a restart)"
        lines.append(f"  {where}: {each['before'] or '-'} -> {each['after'] or '-'}{restart}")
    return "\n".join(lines)


CANCEL = tool(_cancel.cancel, _cancel.ARGUMENTS, "cancel some", OF_OWNER)
COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "ls": tool(_kinds.list_things, _kinds.LIST),
        "show": tool(_kinds.show_thing, _kinds.SHOW),
        "history": tool(show_history, (QUEUE, BACK_TO, POINTS), epilog=HISTORY),
        "peek": Look((QUEUE,), 10, of_message, PEEK).command(),
        "create": Change(
            "create",
            (QUEUE,),
            lambda found: f"{found['queue']}: {'created' if found['created'] else 'existed'}",
            epilog=CREATE,
        ).command(),
        "delete": Change(
            "delete",
            (QUEUE, Argument("--force", "also with messages and consumers in it")),
            "{queue}: deleted, {purged:,} messages purged, {held:,} held by consumers".format_map,
            "Delete {queue}?",
            is_long=True,
            epilog=DELETE,
        ).command(),
        "purge": Change(
            "purge",
            (QUEUE, *CHOICE, COUNT),
            "{queue}: {purged:,} purged".format_map,
            "Purge messages of {queue} for good?",
            is_long=True,
            epilog=PURGE,
        ).command(),
        "move": Change(
            "move",
            (QUEUE, TO, *CHOICE, COUNT),
            "{queue}: {moved:,} moved to {to}".format_map,
            is_long=True,
            epilog=MOVE,
        ).command(),
        "redeliver": Change(
            "redeliver",
            (QUEUE, OF_SESSION),
            "{queue}: {redelivered:,} returned to the queue".format_map,
            epilog=REDELIVER,
        ).command(),
        "pause": Change("pause", (QUEUE,), "{queue}: paused".format_map, epilog=PAUSE).command(),
        "resume": Change(
            "resume", (QUEUE,), "{queue}: resumed".format_map, epilog=OF_ADMIN
        ).command(),
        "close": Change("close", (SESSION,), "closed {session}".format_map, epilog=CLOSE).command(),
        "trim": Change(
            "trim",
            (STREAM, FIRST, FIRST_TIME),
            "{stream}: {trimmed:,} removed, the first is {first:,}".format_map,
            "Remove records of {stream} for good?",
            epilog=OF_ADMIN,
        ).command(),
        "clear": Change(
            "clear",
            (TOPIC,),
            lambda found: f"{found['destination']}: {'cleared' if found['cleared'] else CLEAR}",
            "Remove the last value of {destination}?",
            epilog=CLEARED,
        ).command(),
        "cancel": evolve(CANCEL, text=""),
        "export": tool(
            _definitions.export_definitions, _definitions.EXPORT, epilog=_definitions.EXPORT_EPILOG
        ),
        "import": tool(
            _definitions.import_definitions, _definitions.IMPORT, epilog=_definitions.IMPORT_EPILOG
        ),
        "reload": Change("reload", (), _reloaded, epilog=RELOAD).command(),
        "explain": tool(explain, EXPLAIN, epilog=EXPLAIN_EPILOG),
        "subs": Command(
            epilog=SUBS,
            commands={
                "ls": tool(_kinds.lister("durable"), (_kinds.NAMES,), "list all, connected or not"),
                "rm": Change(
                    "end",
                    (DURABLE, CLIENT_ID, OWNER, DESTINATION),
                    "ended {name!r}".format_map,
                    "End the durable subscription {name!r}, and drop its messages?",
                ).command("end one permanently"),
            },
        ),
        "schedules": Command(
            epilog=SCHEDULED,
            commands={
                "ls": tool(
                    _kinds.lister("schedule"),
                    (USER, _kinds.NAMES),
                    "list scheduled messages with their users",
                ),
                "cancel": CANCEL,
            },
        ),
        "dlq": Command(
            epilog=DLQ,
            commands={
                "ls": tool(list_dead, (_kinds.NAMES,), "list the dead-letter queues"),
                "show": Look((DEAD, EXACT), None, of_dead_letter).command(
                    "print dead letters, without removing them"
                ),
                "retry": Change(
                    "retry",
                    (DEAD, EXACT, OTHER, ORIGIN, *CHOICE, COUNT),
                    _retried,
                    is_long=True,
                    missing={"sent": 0, "left": {}},
                ).command("resend dead letters, and remove them"),
                "drop": Change(
                    "purge",
                    (DEAD, EXACT, *CHOICE, COUNT),
                    "{queue}: {purged:,} dropped".format_map,
                    "Drop messages of {queue} for good?",
                    is_long=True,
                    missing={"purged": 0},
                ).command("delete dead letters"),
            },
        ),
    }
)
