"""Access to the NATS servers of a cluster, by its settings."""

import logging
import ssl
from pathlib import Path

from attrs import evolve

from trio_stomp.base import READ, WRITE, OptionError, exposed
from trio_stomp.config import ClusterOptions
from trio_stomp.nats import NatsError, NatsOptions, parse_address

logger = logging.getLogger("trio_stomp")

CONNECT_S = 2.0
ANSWER_S = 1.0
"""Minimum time for an answer of the servers; longer leases allow twice their time."""


def nats_options(options: ClusterOptions, name: str) -> NatsOptions:
    """Return the options of a client of the NATS servers.

    Args:
      options: The settings of the cluster.
      name: The client's name in the servers' monitoring.

    Raises:
      OptionError: An address or file is wrong; the text names it.
    """
    try:
        return _nats_options(options, name)
    except (NatsError, OSError, ValueError) as error:
        raise OptionError(f"cluster: {error}") from error


def _nats_options(options: ClusterOptions, name: str) -> NatsOptions:
    login = token = passcode = ""
    if options.cluster_credentials:
        if warning := exposed(options.cluster_credentials, READ | WRITE):
            logger.warning("cluster: %s", warning)
        words = Path(options.cluster_credentials).read_text(encoding="utf-8").split()
        if len(words) == 1:
            (token,) = words
        elif len(words) == 2:
            login, passcode = words
        else:
            raise ValueError(
                f"{options.cluster_credentials} has {len(words)} words, but must have a login and "
                "a passcode, or a token"
            )
    tls = None
    if options.cluster_ca or options.cluster_cert:
        tls = ssl.create_default_context(cafile=options.cluster_ca or None)
        if options.cluster_cert:
            tls.load_cert_chain(options.cluster_cert)
    servers = [parse_address(each.strip()) for each in options.cluster.split(",") if each.strip()]
    if login:
        servers = [evolve(each, login=login, passcode=passcode) for each in servers]
    return NatsOptions(
        servers,
        name=name,
        token=token,
        tls=tls,
        connect_s=min(CONNECT_S, options.lease_s),
        answer_s=max(ANSWER_S, 2 * options.lease_s),
    )
