"""Floor 5: statistics."""
from trio_stomp.diag._reporter import Reporter as Reporter
