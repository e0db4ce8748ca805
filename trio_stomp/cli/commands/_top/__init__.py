"""``trio-stomp top``: shows a running broker's figures in the terminal."""

from trio_stomp.cli.commands._top._top import main as main
from trio_stomp.cli.commands._top._top import make_parser as make_parser
