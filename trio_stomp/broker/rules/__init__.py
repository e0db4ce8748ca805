"""Access rules, and the rights of one user that follow from them.

Handles: rules, their order, a user's rights, the built-in rules.
Does not handle: checking frames; see ``access``.
"""

from trio_stomp.broker.rules._rights import Rights as Rights
from trio_stomp.broker.rules._rules import AccessRules as AccessRules
from trio_stomp.broker.rules._rules import Action as Action
from trio_stomp.broker.rules._rules import Decision as Decision
from trio_stomp.broker.rules._rules import Need as Need
from trio_stomp.broker.rules._rules import Rule as Rule
from trio_stomp.broker.rules._rules import built_in_rules as built_in_rules
from trio_stomp.broker.rules._rules import glob_matches as glob_matches
from trio_stomp.broker.rules._rules import hides as hides
from trio_stomp.broker.rules._rules import needs as needs
from trio_stomp.broker.rules._rules import targets as targets
