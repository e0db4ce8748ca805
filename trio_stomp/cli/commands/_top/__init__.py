"""``trio-stomp top``: shows a running broker's figures in the terminal."""

from trio_stomp.cli.commands._top._top import COMMAND as COMMAND
