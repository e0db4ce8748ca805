"""Run the test suites of other projects against this broker and, if installed, their own.

python scripts/suites.py --sources DIR                 run all whose sources are in DIR
python scripts/suites.py --sources DIR --suite gem     run one of them
python scripts/suites.py --sources DIR --write         record the results for the docs, too

DIR holds checkouts under the names that --list shows. Missing ones are reported and skipped.
Differences are printed as a table. The exit code is 1 if a test fails with our broker, and
scripts/_suites/explained.toml does not explain it.
"""

import sys

from _suites.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
