"""The TLS between nodes, by a node's settings."""

import trio

from trio_stomp.base import OptionError, is_loopback
from trio_stomp.config import Settings
from trio_stomp.transport import LinkTls


async def open_link_tls(settings: Settings) -> LinkTls | None:
    """Return the TLS between this node and others; None = connections between nodes use none.

    Raises:
      OptionError: A file is wrong, other nodes would not accept the certificate, or the options
        would have messages of encrypted clients pass between nodes in the clear.

    Checkpoint: always. Cancel: after the files have been read.
    """
    return await trio.to_thread.run_sync(_open, settings)


def _open(settings: Settings) -> LinkTls | None:
    cluster, transport = settings.cluster, settings.transport
    host = cluster.node_address.rpartition(":")[0].strip("[]")
    if not cluster.node_ca:
        if transport.tls_cert and cluster.cluster_partitions > 1 and not is_loopback(host):
            raise OptionError(
                f"clients use TLS, which ends at this node, but their frames would pass from {host}"
                " to other nodes in the clear: name the authorities of the nodes' certificates"
                " (node_ca)"
            )
        return None
    if not transport.tls_cert:
        raise OptionError(
            "node_ca needs the certificate that this node presents to others: give tls_cert, too"
        )
    tls = LinkTls(transport.tls_cert, transport.tls_key, cluster.node_ca, transport.tls_min_version)
    tls.check(host)
    return tls
