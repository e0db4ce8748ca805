"""Sessions: the commands CONNECT, DISCONNECT and DIAG."""

from attrs import define

from trio_stomp.base import ANONYMOUS, CloseReason, ProtocolError
from trio_stomp.broker._diag_answers import DiagRequests
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import Client, Work
from trio_stomp.broker.headers import Dialect
from trio_stomp.broker.routing import BrokerEvents
from trio_stomp.broker.subscribing import Leaving
from trio_stomp.frames import OPENING, encode_frame, encode_receipt
from trio_stomp.protocol import HeartbeatPlan, Opened


@define(eq=False, repr=False)
class Sessions:
    """Begins and ends the sessions of clients."""

    server_name: str
    dialect: Dialect
    clients: dict[Client, None]
    leaving: Leaving
    answers: DiagRequests
    events: BrokerEvents
    authorizer: Authorizer

    def open(self, client: Client, event: Opened) -> None:
        """Begin a session: set the identity of the client, and answer CONNECTED.

        Raises:
          ProtocolError: The users have changed since the client was authenticated.
        """
        self.authorizer.check_login(event.identity, event.generation)
        headers = dict(event.headers)
        client.version = event.version
        client.identity = event.identity
        client.user = event.identity.name or headers.get("login", "")
        self.authorizer.admit(client)
        client.client_id = headers.get("client-id", "")
        self.clients[client] = None
        answer = [
            ("version", event.version.name),
            ("session", client.session_id),
            ("heart-beat", _heartbeat_header(event.heartbeats)),
        ]
        if self.server_name:
            answer.append(("server", self.server_name))
        if client.user:
            answer.append(("user-name", client.user))
        names, request_id = self.dialect.connected_answers, headers.get("request-id")
        if request_id is None and "receipt-id" in names:
            request_id = headers.get("receipt")
        if request_id is not None:
            answer += [(name, request_id) for name in names]
        client.outbox.stage_frame(encode_frame("CONNECTED", answer, OPENING))
        detail = f"STOMP {event.version.name} over {client.transport} from {client.remote}"
        self.events.record("connect", client, detail=detail)

    def leave(self, client: Client, receipt: bytes | None, now: float) -> Work | None:
        """Apply a DISCONNECT: end all subscriptions, send the RECEIPT, and close.

        Returns:
          If the dialect keeps the socket, the work that ends the session; otherwise None.
        """
        if self.dialect.keeps_socket_after_disconnect:
            return self._end_session(client, receipt, now)
        self.leaving.leave(client, now)
        if receipt is not None:
            client.outbox.stage_frame(encode_receipt(receipt))
        client.is_refused = True
        client.outbox.close(CloseReason.CLIENT_DISCONNECT)
        return None

    def _end_session(self, client: Client, receipt: bytes | None, now: float) -> Work:
        # Its subscriptions end here: it may open another session at once.
        yield from self.leaving.ending_all(client, now)
        if client not in self.clients:
            return  # its connection has ended meanwhile
        if receipt is not None:
            client.outbox.stage_frame(encode_receipt(receipt))
        del self.clients[client]
        reason, detail = CloseReason.CLIENT_DISCONNECT.text, f"from {client.remote}"
        self.events.record("disconnect", client, reason=reason, detail=detail)
        # The next session on this connection may have another user.
        client.identity, client.user, client.rights = ANONYMOUS, "", None
        client.quota = None

    def answer(self, client: Client, query: str) -> None:
        """Answer the command DIAG with the requested figures.

        Raises:
          ProtocolError: The query is unknown, or denied.
        """
        self.authorizer.check_question(client)
        answer = self.answers.queries().command(query)
        if answer is None:
            raise ProtocolError(
                "unknown-query",
                f"Invalid message! DIAG does not know the query {query[:40]!r}; it knows session,"
                " ws_buffer, stale, subs and the four …-size words",
            )
        headers = [("content-type", "text/plain")]
        client.outbox.stage_frame(encode_frame("DIAG", headers, client.rules, answer.encode()))


def _heartbeat_header(plan: HeartbeatPlan) -> str:
    return f"{plan.send_every_s * 1000:.0f},{plan.expect_every_s * 1000:.0f}"
