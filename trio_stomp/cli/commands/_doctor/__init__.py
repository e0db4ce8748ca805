"""``trio-stomp doctor``: checks whether this machine meets a broker's needs."""

from trio_stomp.cli.commands._doctor._doctor import main as main
from trio_stomp.cli.commands._doctor._doctor import make_parser as make_parser
