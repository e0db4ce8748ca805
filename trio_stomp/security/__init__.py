"""Floor 3: authentication: users and passcodes, tokens, certificates, and throttling of attempts.

Handles: the identity of a client.
Does not handle: its rights; see ``broker.rules``.
"""

from trio_stomp.security._accounts import Accounts as Accounts
from trio_stomp.security._authenticator import Attempts as Attempts
from trio_stomp.security._authenticator import Authenticator as Authenticator
from trio_stomp.security._authenticator import Visitor as Visitor
from trio_stomp.security._credentials import Credentials as Credentials
from trio_stomp.security._credentials import from_http as from_http
from trio_stomp.security._credentials import without_secrets as without_secrets
from trio_stomp.security._options import SecurityOptions as SecurityOptions
from trio_stomp.security._passcodes import MAX_PASSCODE_BYTES as MAX_PASSCODE_BYTES
from trio_stomp.security._passcodes import Hasher as Hasher
from trio_stomp.security._passcodes import PasscodeChecker as PasscodeChecker
from trio_stomp.security._passcodes import hash_passcode as hash_passcode
from trio_stomp.security._passcodes import is_hashed as is_hashed
from trio_stomp.security._passcodes import needs_rehash as needs_rehash
from trio_stomp.security._throttle import networks_of as networks_of
from trio_stomp.security._users import Changes as Changes
from trio_stomp.security._users import UserBook as UserBook
from trio_stomp.security._users import change_user_file as change_user_file
from trio_stomp.security._users import check_name as check_name
from trio_stomp.security._users import read_user_file as read_user_file
from trio_stomp.security._users import warnings as warnings
