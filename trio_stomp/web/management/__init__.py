"""The management interface at ``/api/v1``: lists, views, operations and changes.

Handles: its requests, each with its parameters, rights, errors, progress and result; their
description as OpenAPI.
Does not handle: what they do to messages (``broker.managing``).
"""

from trio_stomp.web.management._core import Core as Core
from trio_stomp.web.management._definitions import MAX_BYTES as MAX_BYTES
from trio_stomp.web.management._definitions import as_toml as as_toml
from trio_stomp.web.management._interface import PAGES as PAGES
from trio_stomp.web.management._interface import add_interface as add_interface
