"""Explanations of why a message did or did not reach a subscriber.

Handles: answers from the event history, traces, stompserver's ``/queue/monitor``.
Does not handle: recording the event history; see ``delivery``.
"""

from trio_stomp.broker.explain._explain import Explainer as Explainer
from trio_stomp.broker.explain._queue_monitor import Monitor as Monitor
from trio_stomp.broker.explain._tracer import Tracer as Tracer
