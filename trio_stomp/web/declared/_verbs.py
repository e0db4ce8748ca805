"""The operations that are commands, too: arguments, rights, answers and texts of each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import evolve

from trio_stomp.web.declared._declaration import (
    COUNT,
    COUNTS,
    FLAG,
    TEXT,
    Flag,
    Number,
    Parameter,
    Schema,
    Time,
    Verb,
)

ALL = 10**15
MOST_IDS = 1_000
ADMIN, OWNER_OR_ADMIN = (
    "admin at DIAG",
    "a login; admin at DIAG, or at the destination, for those of other users",
)
OF_DESTINATIONS = ("invalid-destination", "wildcard-in-send", "destination-too-long", "not-allowed")
OF_BODIES = ("length-required", "too-large")
OF_SENDS = (*OF_BODIES, "not-authorized", "queue-full", "memory-limit", "storage")
OF_MOVES = ("queue-full", "no-subscriber", "partitions-apart")
OF_QUEUES = (*OF_DESTINATIONS, "no-such-queue")
OF_CHOICES = (*OF_QUEUES, "invalid-selector")

QUEUE = Parameter("queue", "the name of a queue, such as /queue/orders", is_required=True)
TO = Parameter("to", "the destination to move them to, such as /queue/others", is_required=True)
SESSION = Parameter("session", "the id of a session; the list of connections has it", True)
SELECTOR = Parameter(
    "selector", "only messages whose headers match, as in kind = 'apple'", value="S"
)
BODY = Parameter("body", "only messages whose body contains this", value="TEXT")
SINCE = Time("since", "only messages that arrived then or later", most=ALL)
UNTIL = Time("until", "only messages that arrived earlier", most=ALL)
ID = Parameter("id", "only this message", most_times=MOST_IDS)
CONDITIONS = (SELECTOR, BODY, SINCE, UNTIL, ID)
"""Parameters that choose messages of a queue."""
COUNTED = Number(
    "count", "the maximum number of messages, oldest first", default=ALL, least=1, most=ALL
)
INSTEAD = Parameter("to", "the destination of all, instead of each message's original one")
ORIGIN = Parameter("origin", "only those that were sent to it", most_times=MOST_IDS, value="D")
HOLDER = Parameter("session", "only those of this session")
FORCE = Flag("force", "also with messages and consumers")
STREAM = Parameter("stream", "a stream, such as /stream/topic/log", is_required=True)
AT = Number("offset", "the offset of the first record", most=2**53)
TIME = Time("time", "the time of the first record, instead of an offset", most=2**53)
TOPIC = Parameter("destination", "a topic, such as /topic/rates", True, value="TOPIC")
DURABLE = Parameter("name", "the name of a durable subscription", is_required=True)
CLIENT_ID = Parameter("client_id", "the client id of its subscriber, if it has one", value="ID")
OWNER = Parameter("owner", "the user who created it, if several have the name", value="USER")
DESTINATION = Parameter("destination", "its destination, if several have the name", value="D")

_STAYS = """\
Unacknowledged messages, those that wait for their redelivery, and those that arrive meanwhile
stay. It ends with the connection, as at Ctrl-C; what was done before stays done.
"""


def _reloaded(result: dict[str, Any]) -> str:
    who = f"node {result['node']}" if result["node"] else "the broker"
    lines = [f"{who} has read its files again: {result['total']:,} changes"]
    if result["node"]:
        lines.append("the other nodes of the cluster have not: ask each of them")
    for each in result["changes"]:
        where = f"[{each['group']}] {each['name']}".rstrip()
        restart = "" if each["is_live"] else " (takes a restart)"
        lines.append(f"  {where}: {each['before'] or '-'} -> {each['after'] or '-'}{restart}")
    return "\n".join(lines)


def _retried(result: dict[str, Any]) -> str:
    left = (f"{result['queue']}: {count} stay: {why}" for why, count in result["left"].items())
    return "\n".join([f"{result['queue']}: {result['sent']:,} sent again", *left])


_CHANGE: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("group", "name", "before", "after"), TEXT),
        "is_live": FLAG,
    },
    "required": ["group", "name", "before", "after", "is_live"],
}
PAUSE = Verb(
    name="pause",
    summary="Stop the hand-out of a queue to its consumers.",
    right=ADMIN,
    parameters=(QUEUE,),
    answer={"queue": TEXT, "paused": FLAG},
    errors=OF_QUEUES,
    done="{queue}: paused".format_map,
    note="""\
A paused queue accepts messages, and those already delivered can be acknowledged. It is paused until
it is resumed, or the broker restarts.
""",
)
PURGE = Verb(
    name="purge",
    summary="Remove the waiting messages of a queue for good.",
    right="receive at the queue",
    parameters=(QUEUE, *CONDITIONS, COUNTED),
    answer={"queue": TEXT, "purged": COUNT},
    errors=OF_CHOICES,
    has_progress=True,
    done="{queue}: {purged:,} purged".format_map,
    question="Purge messages of {queue} for good?",
    note=_STAYS,
)
RETRY = Verb(
    name="retry",
    summary="Send dead letters of a queue to their original destinations.",
    right="receive at the queue, send to each destination; create, if it is a new queue",
    parameters=(QUEUE, INSTEAD, ORIGIN, *CONDITIONS, COUNTED),
    answer={"queue": TEXT, "sent": COUNT, "left": COUNTS},
    errors=OF_CHOICES,
    has_progress=True,
    done=_retried,
)
ENDING = Verb(
    name="end",
    summary="End a durable subscription with its messages.",
    right=OWNER_OR_ADMIN,
    parameters=(DURABLE, CLIENT_ID, OWNER, DESTINATION),
    answer={"name": TEXT, "ended": COUNT},
    errors=("no-such-subscription", "ambiguous-subscription"),
    done="ended {name!r}".format_map,
    question="End the durable subscription {name!r}, and drop its messages?",
)
VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        each.name: each
        for each in (
            Verb(
                name="create",
                summary="Create a queue that stays while it is empty.",
                right="create at the queue",
                parameters=(QUEUE,),
                answer={"queue": TEXT, "created": FLAG},
                errors=OF_DESTINATIONS,
                as_send=True,
                done=lambda found: (
                    f"{found['queue']}: {'created' if found['created'] else 'existed'}"
                ),
                note="""\
A queue exists from its first use. One that was created stays without messages and consumers, with a
store also over restarts, until it is deleted.
""",
            ),
            Verb(
                name="delete",
                summary="Delete a queue.",
                right=ADMIN,
                parameters=(QUEUE, FORCE),
                answer={"queue": TEXT, "deleted": FLAG, "purged": COUNT, "held": COUNT},
                errors=(*OF_QUEUES, "queue-not-empty", "queue-in-use"),
                has_progress=True,
                done=(
                    "{queue}: deleted, {purged:,} messages purged, {held:,} held by consumers"
                ).format_map,
                question="Delete {queue}?",
                note="""\
A queue that has messages or consumers is refused, unless it is forced: then its messages are purged
and the connections of its consumers closed.
""",
            ),
            PURGE,
            Verb(
                name="move",
                summary="Move the waiting messages of a queue to another destination.",
                right="receive at the queue, send to the other; create, if that is a new queue",
                parameters=(QUEUE, TO, *CONDITIONS, COUNTED),
                answer={"queue": TEXT, "to": TEXT, "moved": COUNT},
                errors=(*OF_CHOICES, *OF_MOVES),
                has_progress=True,
                done="{queue}: {moved:,} moved to {to}".format_map,
                note=f"""\
Messages keep their headers, except for the destination, and their order. A stored message is in
one of the two queues at any time. It ends at the first message for which there is no room.
{_STAYS}""",
            ),
            Verb(
                name="redeliver",
                summary="Return the unacknowledged messages of a queue to it.",
                right=ADMIN,
                parameters=(QUEUE, HOLDER),
                answer={"queue": TEXT, "redelivered": COUNT},
                errors=(*OF_QUEUES, "no-such-session"),
                done="{queue}: {redelivered:,} returned to the queue".format_map,
                note="Consumers get them again; they do not count as failed.\n",
            ),
            PAUSE,
            evolve(
                PAUSE,
                name="resume",
                summary="Continue the hand-out of a queue.",
                done="{queue}: resumed".format_map,
                note="",
            ),
            Verb(
                name="close",
                summary="Close a connection.",
                right=ADMIN,
                parameters=(SESSION,),
                answer={"session": TEXT, "closed": FLAG},
                errors=("no-such-session",),
                done="closed {session}".format_map,
                note="""\
The client gets an ERROR with the code closed-by-operator, and what it had not acknowledged goes to
others. It may connect again.
""",
            ),
            Verb(
                name="trim",
                summary="Remove the beginning of a stream for good.",
                right=ADMIN,
                parameters=(STREAM, AT, TIME),
                answer={"stream": TEXT, "first": COUNT, "trimmed": COUNT},
                errors=("unknown-stream",),
                done="{stream}: {trimmed:,} removed, the first is {first:,}".format_map,
                question="Remove records of {stream} for good?",
                note="The records before an offset or a time are removed.\n",
            ),
            Verb(
                name="clear",
                summary="Remove the last value of a topic.",
                right="send at the topic",
                parameters=(TOPIC,),
                answer={"destination": TEXT, "cleared": COUNT},
                errors=OF_DESTINATIONS,
                done=lambda found: (
                    f"{found['destination']}: "
                    f"{'cleared' if found['cleared'] else 'had no last value'}"
                ),
                question="Remove the last value of {destination}?",
                note="""\
New subscribers do not get the last value any more; subscribers get no message. SEND with
retain:remove does the same.
""",
            ),
            Verb(
                name="reload",
                summary="Make a broker read its files again.",
                right=ADMIN,
                answer={
                    "reloaded": FLAG,
                    "node": TEXT,
                    "total": COUNT,
                    "changes": {"type": "array", "items": _CHANGE},
                },
                errors=("invalid-settings",),
                done=_reloaded,
                note="""\
It reads settings, users, rules and certificates, as at SIGHUP, and shows the first 1,000 changes.
If one file is wrong, nothing changes. In a cluster one node does it, which the answer names; the
others read files of their own.
""",
            ),
        )
    }
)
"""The operations that are commands of the same name, in the order of the help."""
