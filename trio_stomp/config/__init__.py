"""All that an operator can choose, in one value.

Handles: composing the options of each floor into ``Settings``; the flat list of options that
the command line is made from; checking names, types and values.

Does not handle: what the options mean (each floor does), or reading the command line (``cli``).
"""

from trio_stomp.config._acl_file import read_acl_file as read_acl_file
from trio_stomp.config._load import OptionSpec as OptionSpec
from trio_stomp.config._load import build as build
from trio_stomp.config._load import from_text as from_text
from trio_stomp.config._load import hint as hint
from trio_stomp.config._load import options as options
from trio_stomp.config._policy_file import read_policy_file as read_policy_file
from trio_stomp.config._settings import ListenOptions as ListenOptions
from trio_stomp.config._settings import Settings as Settings
