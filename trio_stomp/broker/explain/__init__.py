"""Explanations of why a message did or did not reach a subscriber.

Handles: answers from the event history, traces, stompica's monitor.
Does not handle: writing the event history; see ``delivery``.
"""

from trio_stomp.broker.explain._explain import Explainer as Explainer
from trio_stomp.broker.explain._queue_monitor import Monitor as Monitor
from trio_stomp.broker.explain._tracer import Tracer as Tracer
