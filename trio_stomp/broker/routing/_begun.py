"""What is raised where a SEND is done, and its many subscribers are still to be reached."""

from trio_stomp.broker.routing._fanout_pieces import Giving


class Begun(Exception):
    """Something that a client asked for is done; to tell others of it is left to ``giving``."""

    def __init__(self, giving: Giving) -> None:
        super().__init__()
        self.giving = giving
