"""Why a message did, or did not, reach somebody.

Handles: answers from the history of events, traces, stompica's monitor.
Does not handle: writing the history; see ``delivery``.
"""

from trio_stomp.broker.explain._explain import Explainer as Explainer
from trio_stomp.broker.explain._queue_monitor import Monitor as Monitor
from trio_stomp.broker.explain._tracer import Tracer as Tracer
