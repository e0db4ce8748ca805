"""What requests of the management interface take, need and answer, and their texts.

Handles: declarations of which the interface, its OpenAPI document and the commands are made.
Does not handle: what the requests do (``management``). It imports almost nothing, so that commands
start fast.
"""

from trio_stomp.web.declared._declaration import COUNT as COUNT
from trio_stomp.web.declared._declaration import COUNTS as COUNTS
from trio_stomp.web.declared._declaration import FLAG as FLAG
from trio_stomp.web.declared._declaration import NUMBER as NUMBER
from trio_stomp.web.declared._declaration import NUMBERS as NUMBERS
from trio_stomp.web.declared._declaration import OBJECT as OBJECT
from trio_stomp.web.declared._declaration import TEXT as TEXT
from trio_stomp.web.declared._declaration import TEXTS as TEXTS
from trio_stomp.web.declared._declaration import Declaration as Declaration
from trio_stomp.web.declared._declaration import Fields as Fields
from trio_stomp.web.declared._declaration import Flag as Flag
from trio_stomp.web.declared._declaration import Number as Number
from trio_stomp.web.declared._declaration import Parameter as Parameter
from trio_stomp.web.declared._declaration import Schema as Schema
from trio_stomp.web.declared._declaration import Time as Time
from trio_stomp.web.declared._declaration import Verb as Verb
from trio_stomp.web.declared._declaration import Word as Word
from trio_stomp.web.declared._declaration import hint as hint
from trio_stomp.web.declared._verbs import ALL as ALL
from trio_stomp.web.declared._verbs import AT as AT
from trio_stomp.web.declared._verbs import BODY as BODY
from trio_stomp.web.declared._verbs import CLIENT_ID as CLIENT_ID
from trio_stomp.web.declared._verbs import CONDITIONS as CONDITIONS
from trio_stomp.web.declared._verbs import COUNTED as COUNTED
from trio_stomp.web.declared._verbs import DESTINATION as DESTINATION
from trio_stomp.web.declared._verbs import DURABLE as DURABLE
from trio_stomp.web.declared._verbs import ENDING as ENDING
from trio_stomp.web.declared._verbs import FORCE as FORCE
from trio_stomp.web.declared._verbs import HOLDER as HOLDER
from trio_stomp.web.declared._verbs import ID as ID
from trio_stomp.web.declared._verbs import INSTEAD as INSTEAD
from trio_stomp.web.declared._verbs import OF_BODIES as OF_BODIES
from trio_stomp.web.declared._verbs import OF_CHOICES as OF_CHOICES
from trio_stomp.web.declared._verbs import OF_DESTINATIONS as OF_DESTINATIONS
from trio_stomp.web.declared._verbs import OF_MOVES as OF_MOVES
from trio_stomp.web.declared._verbs import OF_QUEUES as OF_QUEUES
from trio_stomp.web.declared._verbs import OF_SENDS as OF_SENDS
from trio_stomp.web.declared._verbs import ORIGIN as ORIGIN
from trio_stomp.web.declared._verbs import OWNER as OWNER
from trio_stomp.web.declared._verbs import OWNER_OR_ADMIN as OWNER_OR_ADMIN
from trio_stomp.web.declared._verbs import PURGE as PURGE
from trio_stomp.web.declared._verbs import QUEUE as QUEUE
from trio_stomp.web.declared._verbs import RETRY as RETRY
from trio_stomp.web.declared._verbs import SELECTOR as SELECTOR
from trio_stomp.web.declared._verbs import SESSION as SESSION
from trio_stomp.web.declared._verbs import SINCE as SINCE
from trio_stomp.web.declared._verbs import STREAM as STREAM
from trio_stomp.web.declared._verbs import TIME as TIME
from trio_stomp.web.declared._verbs import TO as TO
from trio_stomp.web.declared._verbs import TOPIC as TOPIC
from trio_stomp.web.declared._verbs import UNTIL as UNTIL
from trio_stomp.web.declared._verbs import VERBS as VERBS
