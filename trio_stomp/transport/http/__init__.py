"""HTTP and PROXY headers, which may precede STOMP on the shared port, and their detection.

Handles: sniffing, request heads, origins, PROXY headers.
Does not handle: pages; see ``web``.
"""

from trio_stomp.transport.http._http import UPGRADE_REQUIRED_HEADERS as UPGRADE_REQUIRED_HEADERS
from trio_stomp.transport.http._http import HttpError as HttpError
from trio_stomp.transport.http._http import HttpRequest as HttpRequest
from trio_stomp.transport.http._http import RequestReader as RequestReader
from trio_stomp.transport.http._http import accept_websocket as accept_websocket
from trio_stomp.transport.http._http import encode_response as encode_response
from trio_stomp.transport.http._origin import check_origin as check_origin
from trio_stomp.transport.http._origin import is_forwarded as is_forwarded
from trio_stomp.transport.http._origin import names_this_machine as names_this_machine
from trio_stomp.transport.http._proxy import ProxyNetworks as ProxyNetworks
from trio_stomp.transport.http._proxy import read_proxy_header as read_proxy_header
from trio_stomp.transport.http._relayed import Relayed as Relayed
from trio_stomp.transport.http._relayed import Voucher as Voucher
from trio_stomp.transport.http._relayed import read_relay_header as read_relay_header
from trio_stomp.transport.http._relayed import relay_header as relay_header
from trio_stomp.transport.http._sniff import Speech as Speech
from trio_stomp.transport.http._sniff import sniff as sniff
