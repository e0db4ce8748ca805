"""``trio-stomp doctor``: checks this machine for what a broker needs."""

from trio_stomp.cli.commands._doctor._doctor import main as main
from trio_stomp.cli.commands._doctor._doctor import make_parser as make_parser
