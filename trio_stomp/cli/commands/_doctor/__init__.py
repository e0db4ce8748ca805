"""``trio-stomp doctor``: looks for what would keep a broker from running well here."""

from trio_stomp.cli.commands._doctor._doctor import main as main
from trio_stomp.cli.commands._doctor._doctor import make_parser as make_parser
