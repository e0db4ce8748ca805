"""The settings of a broker, in one value.

Handles: composing the options of each floor into ``Settings``; the flat list of options for the
command line; checking names, types and values; files of settings, policies and rules; environment
variables; comparing settings, and changing those of a running broker.

Does not handle: the meaning of options (their own floors), or the command line (``cli``).
"""

from trio_stomp.config._acl_file import read_acl_file as read_acl_file
from trio_stomp.config._layers import CONFIG_VARIABLE as CONFIG_VARIABLE
from trio_stomp.config._layers import Configuration as Configuration
from trio_stomp.config._layers import load as load
from trio_stomp.config._layers import variable_of as variable_of
from trio_stomp.config._live import Change as Change
from trio_stomp.config._live import adopt as adopt
from trio_stomp.config._live import changes as changes
from trio_stomp.config._live import own as own
from trio_stomp.config._live import policy_book as policy_book
from trio_stomp.config._live import put as put
from trio_stomp.config._live import rule_changes as rule_changes
from trio_stomp.config._load import OptionSpec as OptionSpec
from trio_stomp.config._load import build as build
from trio_stomp.config._load import from_text as from_text
from trio_stomp.config._load import hint as hint
from trio_stomp.config._load import options as options
from trio_stomp.config._policy_file import read_policy_file as read_policy_file
from trio_stomp.config._ruby_file import RubyFile as RubyFile
from trio_stomp.config._ruby_file import read_ruby_file as read_ruby_file
from trio_stomp.config._settings import ClusterOptions as ClusterOptions
from trio_stomp.config._settings import ListenOptions as ListenOptions
from trio_stomp.config._settings import Settings as Settings
from trio_stomp.config._settings_file import GivenPolicy as GivenPolicy
from trio_stomp.config._sources import COMMAND_LINE as COMMAND_LINE
from trio_stomp.config._sources import Given as Given
from trio_stomp.config._sources import Source as Source
from trio_stomp.config._sources import shown as shown
from trio_stomp.config._sources import toml as toml
