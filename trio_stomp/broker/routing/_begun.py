"""What is raised where a SEND is done, and its many subscribers are still to be reached."""

from trio_stomp.broker.routing._fanout_pieces import Giving


class Begun(Exception):
    """A client's request is done, and telling others of it is left to ``giving``."""

    def __init__(self, giving: Giving) -> None:
        super().__init__()
        self.giving = giving
