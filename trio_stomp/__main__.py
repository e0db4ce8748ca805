"""``python -m trio_stomp``: run a broker."""

import sys

from trio_stomp.cli import main

if __name__ == "__main__":
    sys.exit(main())
