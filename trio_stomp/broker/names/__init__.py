"""Names of destinations: kinds, wildcards and matching.

Handles: kinds, patterns, tries, relations of patterns, sorted names.
Does not handle: the destinations themselves; see ``routing``.
"""

from trio_stomp.broker.names._kinds import DEAD_LETTERS as DEAD_LETTERS
from trio_stomp.broker.names._kinds import DIAG_EVENT as DIAG_EVENT
from trio_stomp.broker.names._kinds import DIAG_STREAM as DIAG_STREAM
from trio_stomp.broker.names._kinds import EXPLAIN as EXPLAIN
from trio_stomp.broker.names._kinds import LEFT as LEFT
from trio_stomp.broker.names._kinds import MONITOR as MONITOR
from trio_stomp.broker.names._kinds import PRIVATE as PRIVATE
from trio_stomp.broker.names._kinds import PRIVATE_QUEUE as PRIVATE_QUEUE
from trio_stomp.broker.names._kinds import PRIVATE_TOPIC as PRIVATE_TOPIC
from trio_stomp.broker.names._kinds import RESERVED as RESERVED
from trio_stomp.broker.names._kinds import STOMPSERVER_DEAD_LETTERS as STOMPSERVER_DEAD_LETTERS
from trio_stomp.broker.names._kinds import STREAM as STREAM
from trio_stomp.broker.names._kinds import TRACE as TRACE
from trio_stomp.broker.names._kinds import Kind as Kind
from trio_stomp.broker.names._kinds import check_length as check_length
from trio_stomp.broker.names._kinds import check_public as check_public
from trio_stomp.broker.names._kinds import check_sendable as check_sendable
from trio_stomp.broker.names._kinds import classify as classify
from trio_stomp.broker.names._kinds import is_reserved as is_reserved
from trio_stomp.broker.names._kinds import nearly as nearly
from trio_stomp.broker.names._pattern_sets import as_pattern as as_pattern
from trio_stomp.broker.names._pattern_sets import covers as covers
from trio_stomp.broker.names._pattern_sets import overlaps as overlaps
from trio_stomp.broker.names._sorted_names import SortedNames as SortedNames
from trio_stomp.broker.names._sorted_names import walk as walk
from trio_stomp.broker.names._trie import WildcardTrie as WildcardTrie
from trio_stomp.broker.names._trie import matches as matches
from trio_stomp.broker.names._wildcards import ONE_WORD as ONE_WORD
from trio_stomp.broker.names._wildcards import Pattern as Pattern
from trio_stomp.broker.names._wildcards import Token as Token
from trio_stomp.broker.names._wildcards import compile_pattern as compile_pattern
from trio_stomp.broker.names._wildcards import split as split
