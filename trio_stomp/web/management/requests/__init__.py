"""The declaration of requests: parameters, answers, errors, and their description as OpenAPI.

Handles: parsing a query by a declaration, lists in pages, operations in steps with progress.
Does not handle: the single requests; see ``management``.
"""

from trio_stomp.web.management.requests._endpoint import HEAD as HEAD
from trio_stomp.web.management.requests._endpoint import LATENCY as LATENCY
from trio_stomp.web.management.requests._endpoint import Endpoint as Endpoint
from trio_stomp.web.management.requests._endpoint import listed as listed
from trio_stomp.web.management.requests._endpoint import maybe as maybe
from trio_stomp.web.management.requests._endpoint import record as record
from trio_stomp.web.management.requests._endpoint import record_of as record_of
from trio_stomp.web.management.requests._endpoint import with_fields as with_fields
from trio_stomp.web.management.requests._items import Items as Items
from trio_stomp.web.management.requests._openapi import document as document
from trio_stomp.web.management.requests._openapi import openapi as openapi
from trio_stomp.web.management.requests._parameters import COPIES as COPIES
from trio_stomp.web.management.requests._parameters import ERRORS as ERRORS
from trio_stomp.web.management.requests._parameters import OF_ALL as OF_ALL
from trio_stomp.web.management.requests._parameters import as_http as as_http
from trio_stomp.web.management.requests._parameters import destination_of as destination_of
from trio_stomp.web.management.requests._parameters import http_error as http_error
from trio_stomp.web.management.requests._result import Answering as Answering
from trio_stomp.web.management.requests._result import Record as Record
from trio_stomp.web.management.requests._stepwise import Stepwise as Stepwise
from trio_stomp.web.management.requests._stepwise import messages as messages
from trio_stomp.web.management.requests._window import BY_NAME as BY_NAME
from trio_stomp.web.management.requests._window import LIMIT as LIMIT
from trio_stomp.web.management.requests._window import NAME as NAME
from trio_stomp.web.management.requests._window import OFFSET as OFFSET
from trio_stomp.web.management.requests._window import Key as Key
from trio_stomp.web.management.requests._window import Listing as Listing
from trio_stomp.web.management.requests._window import Window as Window
