"""TLS: a wire over a wire, its contexts and certificates.

Handles: handshakes, encryption, reloading certificates, revocation lists.
Does not handle: logins by certificate; see ``security``.
"""

from trio_stomp.transport.tls._link_tls import LinkTls as LinkTls
from trio_stomp.transport.tls._tls_context import TlsBox as TlsBox
from trio_stomp.transport.tls._tls_wire import TlsError as TlsError
from trio_stomp.transport.tls._tls_wire import TlsWire as TlsWire
