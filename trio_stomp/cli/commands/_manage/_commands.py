"""The commands that look into a broker and change it: each is a row of one table."""

from collections.abc import Mapping
from types import MappingProxyType

from attrs import evolve

from trio_stomp.cli._command import Command
from trio_stomp.cli.commands._manage import _cancel, _definitions, _kinds
from trio_stomp.cli.commands._manage._arguments import DEAD, EXACT, NAMED, tool
from trio_stomp.cli.commands._manage._change import Change
from trio_stomp.cli.commands._manage._dead import list_dead
from trio_stomp.cli.commands._manage._explain import ARGUMENTS as EXPLAIN
from trio_stomp.cli.commands._manage._explain import EPILOG as EXPLAIN_EPILOG
from trio_stomp.cli.commands._manage._explain import explain
from trio_stomp.cli.commands._manage._history import ARGUMENTS as HISTORY_ARGUMENTS
from trio_stomp.cli.commands._manage._history import EPILOG as HISTORY
from trio_stomp.cli.commands._manage._history import show_history
from trio_stomp.cli.commands._manage._messages import Look, of_dead_letter, of_message
from trio_stomp.web.declared import ENDING, PURGE, RETRY, VERBS

OF_OWNER = """\
Users list and end their own; for those of others it needs the rights monitor and admin at DIAG.
"""
PEEK = """\
Nothing is consumed, and nothing is marked as redelivered. Unacknowledged messages are not shown.
It needs the right to browse the queue.
"""
DLQ = """\
QUEUE is the original destination: orders and /queue/orders mean the dead letters in
/queue/DLQ.orders, /topic/prices those in /queue/DLQ.topic/prices; /queue/DLQ.orders works, too.
With --exact QUEUE is the dead-letter queue itself, for policies that name another.

retry sends each message to its original destination, or to --to, and removes it from the
dead-letter queue at the same moment, so no message is lost or duplicated. Headers are kept, except
those about the dead letter. Messages that fail again while it runs stay, and so do those that have
no original destination, no room there, or no right to be sent there by you.
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


DROP = evolve(
    PURGE,
    done="{queue}: {purged:,} dropped".format_map,
    question="Drop messages of {queue} for good?",
)
CANCEL = tool(_cancel.cancel, _cancel.ARGUMENTS, "cancel some", OF_OWNER)
COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "ls": tool(_kinds.list_things, _kinds.LIST),
        "show": tool(_kinds.show_thing, _kinds.SHOW),
        "history": tool(show_history, (NAMED, *HISTORY_ARGUMENTS), epilog=HISTORY),
        "peek": Look((NAMED,), 10, of_message, PEEK).command(),
        **{name: Change(declared).command() for name, declared in VERBS.items()},
        "cancel": evolve(CANCEL, text=""),
        "export": tool(
            _definitions.export_definitions, _definitions.EXPORT, epilog=_definitions.EXPORT_EPILOG
        ),
        "import": tool(
            _definitions.import_definitions, _definitions.IMPORT, epilog=_definitions.IMPORT_EPILOG
        ),
        "explain": tool(explain, EXPLAIN, epilog=EXPLAIN_EPILOG),
        "subs": Command(
            epilog=SUBS,
            commands={
                "ls": tool(_kinds.lister("durable"), (_kinds.NAMES,), "list all, connected or not"),
                "rm": Change(ENDING).command("end one permanently"),
            },
        ),
        "schedules": Command(
            epilog=SCHEDULED,
            commands={
                "ls": tool(
                    _kinds.lister("schedule"),
                    (_kinds.USER, _kinds.NAMES),
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
                "retry": Change(RETRY, True, {"sent": 0, "left": {}}).command(
                    "resend dead letters, and remove them"
                ),
                "drop": Change(DROP, True, {"purged": 0}).command("delete dead letters"),
            },
        ),
    }
)
