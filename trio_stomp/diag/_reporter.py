"""stub"""
from trio_stomp.diag._options import DiagOptions
from trio_stomp.server import Server
class Reporter:
    def __init__(self, options: DiagOptions, server: Server) -> None:
        self.interval_s = options.diag_interval_s
    def tick(self, now: float) -> None: ...
    def end_turn(self, now: float) -> None: ...
