"""Run the test suites of other projects against this broker and, where it is there, against theirs.

python scripts/suites.py --sources DIR                 run all whose sources are there
python scripts/suites.py --sources DIR --suite gem     one of them
python scripts/suites.py --sources DIR --write         and record what was seen, for the docs

DIR holds checkouts under the names that --list shows. What is missing is said, and left out.
Differences are printed as a table; a failure of ours that scripts/_suites/explained.toml does not
explain ends it with 1.
"""

import sys

from _suites.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
