"""Errors of the codec, and of the whole client."""


class NatsError(Exception):
    """A NATS operation failed. The text names the server or subject, the cause and the remedy."""


class NatsProtocolError(NatsError):
    """A server, or whatever answers at its address, does not speak the NATS protocol."""
