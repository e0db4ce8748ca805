"""Which page answers which path: a pure function from request to response."""

import html
import json
from string import Template

from trio_stomp.transport import UPGRADE_REQUIRED_HEADERS, HttpRequest, encode_response

DEFAULT_PORT = "61613"

# The paths that clients know brokers by: RabbitMQ's /ws, ActiveMQ's /stomp and the last word of
# SockJS. The upgrade is accepted on any path; here it only matters what a plain GET is told.
WEBSOCKET_PATHS = frozenset({"/ws", "/stomp"})
WEBSOCKET_SUFFIX = "/websocket"

LIVE = "/livez"
HEALTH_PATHS = frozenset({LIVE, "/readyz"})
_NOT_KEPT = (("Cache-Control", "no-store"),)

# The page needs nothing but its own style, so whatever slipped into it could not run or load.
_PAGE_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'",
    ),
    ("Cache-Control", "no-store"),
)

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>trio_stomp $version</title>
<style>
:root { color-scheme: light dark; --back: #f6f7f9; --card: #fff; --ink: #1c2330;
  --soft: #5b6678; --line: #dfe3ea; --mark: #0b6e69; }
@media (prefers-color-scheme: dark) { :root { --back: #11151c; --card: #1a202a;
  --ink: #e6eaf1; --soft: #9aa6b8; --line: #2c3442; --mark: #5fd0c7; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 2rem 1rem; background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; }
h1 { margin: 0; font-size: 1.7rem; }
h1 small { color: var(--soft); font-weight: 400; font-size: 1rem; }
h2 { margin: 0 0 .5rem; font-size: 1rem; color: var(--mark); }
p { margin: .3rem 0 1.2rem; color: var(--soft); }
.row { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); }
section { min-width: 0; padding: 1rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; }
section.wide { margin-top: 1rem; }
pre { margin: 0; overflow-x: auto; font: 13px/1.5 ui-monospace, monospace; }
table { border-spacing: 0; font-size: .9rem; }
td { padding: .1rem 1.5rem .1rem 0; vertical-align: top; }
code { color: var(--mark); font: 13px ui-monospace, monospace; white-space: nowrap; }
</style>
</head>
<body>
<main>
<h1>trio_stomp <small>$version</small></h1>
<p>A STOMP 1.0, 1.1 and 1.2 message broker. TCP and WebSocket clients connect to the same
address: <code>$address</code></p>
<div class="row">
<section>
<h2>Python: stomp.py</h2>
<pre>$python</pre>
</section>
<section>
<h2>Browser: stompjs</h2>
<pre>$javascript</pre>
</section>
</div>
<section class="wide">
<h2>Watch the broker: subscribe to DIAG topics</h2>
<table>
$topics
</table>
</section>
</main>
</body>
</html>
""")

_PYTHON = Template("""import stomp

class Print(stomp.ConnectionListener):
    def on_message(self, frame):
        print(frame.body)

broker = stomp.Connection12([($host, $port)])
broker.set_listener("", Print())
broker.connect(wait=True)
broker.subscribe("/topic/hello", id="1")
broker.send("/topic/hello", "Hello, world")
input("Enter ends this\\n")
broker.disconnect()
""")

_JAVASCRIPT = Template("""const client =
  new StompJs.Client({brokerURL: $url});

client.onConnect = () => {
  client.subscribe("/topic/hello",
    message => console.log(message.body));
  client.publish(
    {destination: "/topic/hello", body: "Hello, world"});
};
client.activate();
""")

_TOPICS = (
    ("DIAG*", "everything below"),
    ("DIAG/session", "clients, WebSockets, subscriptions"),
    ("DIAG/connections", "each connection: frames, bytes, heart-beats, errors"),
    ("DIAG/destinations", "each destination: subscribers, sent, delivered, dropped"),
    ("DIAG/queues", "depth, age and unacknowledged messages of each queue"),
    ("DIAG/latency", "how long messages take"),
    ("DIAG/stale", "messages that wait for a subscriber until they expire"),
    ("DIAG/ws_buffer", "buffers of the WebSockets"),
    ("DIAG/process", "memory, CPU and pauses of the broker"),
    ("DIAG/event/*", "connects, disconnects and drops, as they happen"),
)


def respond(request: HttpRequest, *, version: str, address: str, unready: str = "") -> bytes:
    """Return the whole answer to a request that is no upgrade to WebSocket.

    Args:
      version: Of the broker, for the page.
      address: Where this client reached the broker, ``host:port``; it may come from the client
        itself, so it is never trusted to be one.
      unready: Why the broker should get no more work now; "" = it is ready.
    """
    path = request.path
    is_websocket_path = path in WEBSOCKET_PATHS or path.endswith(WEBSOCKET_SUFFIX)
    if path in HEALTH_PATHS and request.method in ("GET", "HEAD"):
        if path == LIVE or not unready:
            return _answer(request, 200, "ok\n", _NOT_KEPT)
        return _answer(request, 503, f"{unready}\n", _NOT_KEPT)
    if path != "/" and path not in HEALTH_PATHS and not is_websocket_path:
        return _answer(request, 404, "Nothing is here. The start page is /\n")
    if request.method not in ("GET", "HEAD"):
        text = "Only GET and HEAD are answered here.\n"
        return _answer(request, 405, text, (("Allow", "GET, HEAD"),))
    if is_websocket_path:
        text = "STOMP over WebSocket is spoken here: connect with a WebSocket client.\n"
        return _answer(request, 426, text, UPGRADE_REQUIRED_HEADERS)
    return _answer(request, 200, _start_page(version, address), _PAGE_HEADERS)


def _answer(
    request: HttpRequest, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()
) -> bytes:
    body = text.encode(errors="replace")
    return encode_response(status, headers, body, head_only=request.method == "HEAD")


def _start_page(version: str, address: str) -> str:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit()):
        host, port = address, DEFAULT_PORT
    # stomp.py takes an IPv6 address as it is; a URL needs it in brackets.
    host = host.removeprefix("[").removesuffix("]")
    topics = "\n".join(
        f"<tr><td><code>{name}</code></td><td>{text}</td></tr>" for name, text in _TOPICS
    )
    return _PAGE.substitute(
        version=html.escape(version),
        address=html.escape(address),
        # Quoted twice: what a person pastes must stay one string, whatever the address is. JSON's
        # strings are strings of both languages.
        python=html.escape(_PYTHON.substitute(host=json.dumps(host), port=port)),
        javascript=html.escape(_JAVASCRIPT.substitute(url=json.dumps(f"ws://{address}/ws"))),
        topics=topics,
    )
