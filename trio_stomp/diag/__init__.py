"""Floor 5: what the broker tells about itself.

Handles: statistics on the DIAG topics at even distances, events on ``DIAG/event/…`` as they
happen, the fields of both (``_schema``), and their place in one numbered stream.
Does not handle: stompica's requests (the broker answers those), keeping what was published, web
pages. What nobody is subscribed to is not even computed.
"""

from trio_stomp.base import PAGE as PAGE
from trio_stomp.base import PREFIX as PREFIX
from trio_stomp.base import SCHEMA_VERSION as SCHEMA_VERSION
from trio_stomp.base import TABLES as TABLES
from trio_stomp.base import Field as Field
from trio_stomp.base import Table as Table
from trio_stomp.diag._figures import Figures as Figures
from trio_stomp.diag._figures import Present as Present
from trio_stomp.diag._options import DiagOptions as DiagOptions
from trio_stomp.diag._reporter import Reporter as Reporter
