"""Floor 5: the broker's statistics and events on its DIAG topics.

Handles: statistics at regular intervals, events on ``DIAG/event/…`` as they happen, the fields of
both (``_schema``), and their order in one numbered stream. Nothing is computed for topics without
subscribers.

Does not handle: stompica's requests (the broker answers those), storing messages, web pages.
"""

from trio_stomp.diag._figures import Figures as Figures
from trio_stomp.diag._figures import Present as Present
from trio_stomp.diag._options import DiagOptions as DiagOptions
from trio_stomp.diag._reporter import Reporter as Reporter
