"""``trio-stomp doctor``: checks whether this machine meets a broker's needs."""

from trio_stomp.cli.commands._doctor._doctor import COMMAND as COMMAND
