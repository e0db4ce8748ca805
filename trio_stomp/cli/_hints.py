"""Hints for users of rabbitmqctl, rabbitmqadmin, mosquitto_pub, mosquitto_sub and nats."""

from collections.abc import Collection, Sequence

from trio_stomp.cli._tool import near

OTHERS = {
    "send": "publish produce",
    "subscribe": "consume listen watch",
    "request": "rr",
    "top": "stats report",
    "ls": "list",
    "peek": "get browse",
    "show": "info",
    "move": "shovel",
    "dlq retry": "requeue",
    "create": "declare add",
    "delete": "rm delete_queue",
    "ls queues": "queues list_queues",
    "ls streams": "stream streams",
    "ls durables": "consumer",
    "ls destinations": "topics",
    "show overview": "overview",
    "export": "definitions export_definitions",
    "import": "import_definitions",
    "ls policies": "list_policies",
    "ls settings": "environment",
    "ls users": "list_users",
    "ls rules": "list_permissions",
    "ls connections": "list_connections connections",
    "ls subscriptions": "list_channels list_consumers list_bindings",
    "purge": "purge_queue",
    "close": "close_connection close_all_connections",
    "health": "status ping check_running node_health_check",
    "passwd": "users user",
    "passwd add": "add_user",
    "passwd del": "delete_user",
    "passwd add --replace": "change_password",
    "passwd verify": "authenticate_user",
    "bench": "latency",
    "serve": "start server",
}
"""Our commands, each with its names in other tools."""
COMMANDS = {name: ours for ours, names in OTHERS.items() for name in names.split()}
NO_COMMANDS = {
    "set_policy": "policies are in a file (--policies), see docs/use/queues.md",
    "set_permissions": "rights are in a file (--acl-file), see docs/operate/authorization.md",
    "add_vhost": "there are no virtual hosts; a second broker is another --port",
    "bind": "there are no exchanges: subscribe to a topic, wildcards included",
    "context": "set TRIO_STOMP_URL, TRIO_STOMP_LOGIN and TRIO_STOMP_PASSCODE",
}
"""Commands of other tools that are something else here."""

BROKER = "the broker is --url stomp://HOST:PORT, or TRIO_STOMP_URL"
LOGIN = "the user is --login, the passcode in TRIO_STOMP_PASSCODE or --passcode-file"
BODY = "the body is the argument behind the destination"
DESTINATION = "the destination is an argument without an option"
OPTIONS = {
    **dict.fromkeys(("-t", "--topic", "--subject", "--queue", "--name"), DESTINATION),
    **dict.fromkeys(("-m", "--message", "--payload"), BODY),
    **dict.fromkeys(("--host", "--hostname", "-p", "--port", "-s", "--server", "-L"), BROKER),
    **dict.fromkeys(("--node", "-n", "-N", "-V", "--vhost"), BROKER),
    **dict.fromkeys(("-u", "--user", "--username", "-P"), LOGIN),
    **dict.fromkeys(("--cafile", "--tlsca", "--tls-ca-cert-file"), "that is --ca-file here"),
    **dict.fromkeys(("--insecure", "--disable-tls-peer-verification"), "that is --insecure-tls"),
    **dict.fromkeys(("-C", "--repeat", "--max-count"), "that is --count here"),
    **dict.fromkeys(("--repeat-delay", "--sleep"), "that is --interval here"),
    **dict.fromkeys(("-W", "--wait"), "that is --for here"),
    "-F": "that is --format here",
    "-f": "that is --file here",
    "-l": "that is --lines here",
    **dict.fromkeys(("-r", "--retain"), "the last value of a topic is -H retain:set here"),
    "--remove-retained": "trio-stomp clear removes the last value of a topic",
    **dict.fromkeys(("-q", "--qos"), "that is --persistent here, or --ack for a subscriber"),
    **dict.fromkeys(("-c", "-i", "--id", "--stream", "--consumer"), "that is --durable here"),
    **dict.fromkeys(("--all", "--deliver"), "that is --from first here"),
    **dict.fromkeys(("--since", "--start-time"), "that is --from TIME here"),
    **dict.fromkeys(("--reply", "--wait-for-reply"), "that is --request here"),
    "--queue-group": "subscribers of one /queue/ share its messages",
    **dict.fromkeys(("--formatter", "--non-interactive", "-j"), "that is --json here"),
    **dict.fromkeys(("--force", "--idempotently", "-y"), "that is --yes here"),
}
"""Options of other tools, with ours."""


def command_hint(name: str, rest: Sequence[str]) -> str:
    """Return a hint for a command of another tool, or "".

    Args:
      name: The first word.
      rest: The second word, if there is one: what `list` or `delete` is about.
    """
    if name in NO_COMMANDS:
        return f"; {NO_COMMANDS[name]}"
    ours = COMMANDS.get(name, "")
    if ours == "ls" and rest and rest[0].isalpha():
        ours += f" {rest[0]}"
    return f"; did you mean {ours}?" if ours else ""


def option_hint(flag: str, known: Collection[str]) -> str:
    """Return a hint for an option: its nearest name, or ours for one of another tool; or "".

    Args:
      flag: The option, as it was given.
      known: The options that the command has: a hint at another one would not help.
    """
    short = flag if flag.startswith("--") else flag[:2]
    hint = OPTIONS.get(short, "")
    named = [word.rstrip(",") for word in hint.split() if word.startswith("-")]
    if hint and (not named or any(each in known for each in named)):
        return f": {hint}"
    return near(flag, known)
