"""The operator's tools for a store.

Handles: verification, inspection, export, import and compaction.
Does not handle: writing to a store in use.
"""

from trio_stomp.store.tools._content import Content as Content
from trio_stomp.store.tools._content import content as content
from trio_stomp.store.tools._content import grouped as grouped
from trio_stomp.store.tools._content import used_id as used_id
from trio_stomp.store.tools._inspect import Scanned as Scanned
from trio_stomp.store.tools._inspect import scan_records as scan_records
from trio_stomp.store.tools._interchange import export_lines as export_lines
from trio_stomp.store.tools._interchange import import_lines as import_lines
from trio_stomp.store.tools._tools import CheckResult as CheckResult
from trio_stomp.store.tools._tools import compact as compact
from trio_stomp.store.tools._tools import export_from as export_from
from trio_stomp.store.tools._tools import import_to as import_to
from trio_stomp.store.tools._tools import inspect as inspect
from trio_stomp.store.tools._tools import verify as verify
from trio_stomp.store.tools._view import View as View
from trio_stomp.store.tools._view import open_view as open_view
