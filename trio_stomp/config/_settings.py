"""All settings of a broker: the frozen options of each floor, composed."""

from collections.abc import Mapping
from types import MappingProxyType

from attrs import Factory, field, frozen

from trio_stomp.base import is_every_address, option
from trio_stomp.broker import AccessRules, BrokerPolicies, DestinationPolicy
from trio_stomp.config._sources import Source
from trio_stomp.diag._options import DiagOptions
from trio_stomp.frames._limits import FrameLimits
from trio_stomp.protocol._options import ProtocolOptions
from trio_stomp.security._options import SecurityOptions
from trio_stomp.server._limits import ServerLimits
from trio_stomp.store._options import JournalOptions, StoreOptions
from trio_stomp.transport._options import TransportOptions
from trio_stomp.web._options import WebOptions

LAST_PORT = 65_535
NO_SOURCES: Mapping[str, Source] = MappingProxyType({})


@frozen
class ListenOptions:
    """The addresses on which the broker listens."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 = every IPv4 address")
    port: int = option(61613, "TCP port for STOMP and WebSocket; 0 = any free one", minimum=0)
    processors: int = option(0, "ignored, accepted for compatibility with stompica", minimum=0)

    def __attrs_post_init__(self) -> None:
        if self.port > LAST_PORT:
            raise ValueError(f"port is {self.port}, but must be {LAST_PORT} or less")
        # An empty host would silently mean all addresses of the machine.
        if not self.host:
            raise ValueError("host is '', but must be a host name or an address")


@frozen
class LogOptions:
    """The log's level and format, for a process that is only a broker."""

    log_level: str = option(
        "info",
        "minimum level of log records",
        choices=("debug", "info", "warning", "error"),
        live=True,
    )
    log_format: str = option(
        "auto",
        "text lines, or JSON objects; auto = text on a terminal, else JSON",
        choices=("auto", "human", "json"),
    )


@frozen
class ClusterOptions:
    """Several nodes as one broker, whose messages servers of NATS JetStream store."""

    cluster: str = option("", "servers of NATS, as nats://a:4222,nats://b:4222; empty = no cluster")
    cluster_name: str = option("stomp", "name of the cluster; its streams in JetStream have it")
    cluster_partitions: int = option(
        1, "owners that destinations are spread over; fixed when the cluster is made", minimum=1
    )
    cluster_colocate: str = option(
        "", "groups of patterns whose destinations lie in one partition: a,b; c,d; fixed as well"
    )
    cluster_replicas: int = option(
        3,
        "servers of NATS that store each message; with 1, losing that server loses all messages",
        minimum=1,
    )
    cluster_followers: int = option(
        2, "nodes that copy each partition beside its owner; the others only watch it", minimum=1
    )
    cluster_credentials: str = option(
        "", "file with login and passcode for NATS on two lines, or a token on one"
    )
    cluster_ca: str = option("", "PEM file of the authorities of the servers of NATS")
    cluster_cert: str = option("", "PEM file of the certificate and key for the servers of NATS")
    node: str = option("", "unique name of this node; empty = the host's name")
    node_address: str = option(
        "127.0.0.1:0", "HOST:PORT where other nodes reach this one; port 0 = any free one"
    )
    node_ca: str = option(
        "",
        "PEM file of the authorities of nodes' certificates (tls_cert); with it, nodes speak TLS "
        "to each other",
    )
    lease_s: float = option(
        1.2, "time after which another node replaces a silent owner", minimum=0.2
    )
    on_engine_loss: str = option(
        "hold",
        "stored messages while most servers of NATS are lost: clients wait (hold) or get an ERROR",
        choices=("hold", "refuse"),
    )

    def __attrs_post_init__(self) -> None:
        host, _, port = self.node_address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > LAST_PORT:
            raise ValueError(
                f"node_address is {self.node_address!r}, but must be HOST:PORT, such as "
                "10.0.0.1:61614"
            )
        if is_every_address(host):
            raise ValueError(
                f"node_address is {self.node_address!r}, where no other node can reach this one:"
                " give its address in the nodes' network"
            )


@frozen
class Settings:
    """All options of a broker, with safe defaults."""

    listen: ListenOptions = Factory(ListenOptions)
    frames: FrameLimits = Factory(FrameLimits)
    protocol: ProtocolOptions = Factory(ProtocolOptions)
    broker: BrokerPolicies = Factory(BrokerPolicies)
    server: ServerLimits = Factory(ServerLimits)
    security: SecurityOptions = Factory(SecurityOptions)
    transport: TransportOptions = Factory(TransportOptions)
    diag: DiagOptions = Factory(DiagOptions)
    store: StoreOptions = Factory(StoreOptions)
    journal: JournalOptions = Factory(JournalOptions)
    cluster: ClusterOptions = Factory(ClusterOptions)
    web: WebOptions = Factory(WebOptions)
    log: LogOptions = Factory(LogOptions)
    destinations: tuple[tuple[str, DestinationPolicy], ...] = ()
    """Policies by destination pattern; the first match counts."""
    rules: AccessRules | None = None
    """The access rules of the settings files; None = those of ``acl_file``."""
    sources: Mapping[str, Source] = field(default=NO_SOURCES, eq=False, repr=False)
    """The source of each option that was given, by name, and of each policy, by its pattern."""

    @classmethod
    def of(cls, **values: object) -> "Settings":
        """Build settings from flat names: ``Settings.of(port=0, ttl_ms=5000)``.

        Args:
          values: Options of any group, by name; missing ones keep their defaults.

        Raises:
          OptionError: a name is unknown, or a value has the wrong type or range.
        """
        # Imported late, as _load reads the fields of this class.
        from trio_stomp.config._load import build

        return build(values)
