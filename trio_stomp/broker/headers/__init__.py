"""Parsing the headers of SEND and SUBSCRIBE, and composing those of RECEIPT and ERROR.

Handles: dialects, options, schedules, forged headers, RECEIPT headers, ERROR frames.
Does not handle: carrying out the requests.
"""

from trio_stomp.broker.headers._dialect import ARTEMIS as ARTEMIS
from trio_stomp.broker.headers._dialect import DSUB as DSUB
from trio_stomp.broker.headers._dialect import NATIVE as NATIVE
from trio_stomp.broker.headers._dialect import Dialect as Dialect
from trio_stomp.broker.headers._dialect import dialect as dialect
from trio_stomp.broker.headers._dialect import resolve as resolve
from trio_stomp.broker.headers._dialect import routing_of as routing_of
from trio_stomp.broker.headers._error_frame import add_origin as add_origin
from trio_stomp.broker.headers._error_frame import error_frame as error_frame
from trio_stomp.broker.headers._error_frame import excerpt_of as excerpt_of
from trio_stomp.broker.headers._error_frame import internal_error as internal_error
from trio_stomp.broker.headers._error_frame import quote as quote
from trio_stomp.broker.headers._error_frame import receipt_of as receipt_of
from trio_stomp.broker.headers._owner import owner_line as owner_line
from trio_stomp.broker.headers._owner import split_owner as split_owner
from trio_stomp.broker.headers._plan import STREAMS as STREAMS
from trio_stomp.broker.headers._plan import TEMPORARY as TEMPORARY
from trio_stomp.broker.headers._plan import SendPlan as SendPlan
from trio_stomp.broker.headers._plan import make_plan as make_plan
from trio_stomp.broker.headers._plan import rename_head as rename_head
from trio_stomp.broker.headers._plan import without_claims as without_claims
from trio_stomp.broker.headers._plan import without_places as without_places
from trio_stomp.broker.headers._schedule import ACTION as ACTION
from trio_stomp.broker.headers._schedule import LAST_MS as LAST_MS
from trio_stomp.broker.headers._schedule import MAX_NUMBER as MAX_NUMBER
from trio_stomp.broker.headers._schedule import SCHEDULE_HEADERS as SCHEDULE_HEADERS
from trio_stomp.broker.headers._schedule import Removal as Removal
from trio_stomp.broker.headers._schedule import Schedule as Schedule
from trio_stomp.broker.headers._schedule import parse_schedule as parse_schedule
from trio_stomp.broker.headers._schedule import removal_of as removal_of
from trio_stomp.broker.headers._send_options import PLAIN_SEND as PLAIN_SEND
from trio_stomp.broker.headers._send_options import PRIORITY_DEFAULT as PRIORITY_DEFAULT
from trio_stomp.broker.headers._send_options import RETAIN_NOT as RETAIN_NOT
from trio_stomp.broker.headers._send_options import RETAIN_SET as RETAIN_SET
from trio_stomp.broker.headers._send_options import SEND_HEADERS as SEND_HEADERS
from trio_stomp.broker.headers._send_options import SendOptions as SendOptions
from trio_stomp.broker.headers._send_outcome import DROPPED as DROPPED
from trio_stomp.broker.headers._send_outcome import DUPLICATE as DUPLICATE
from trio_stomp.broker.headers._send_outcome import EXPIRED as EXPIRED
from trio_stomp.broker.headers._send_outcome import IN_MEMORY as IN_MEMORY
from trio_stomp.broker.headers._send_outcome import MEMORY as MEMORY
from trio_stomp.broker.headers._send_outcome import NOTHING as NOTHING
from trio_stomp.broker.headers._send_outcome import SendOutcome as SendOutcome
from trio_stomp.broker.headers._send_outcome import combined as combined
from trio_stomp.broker.headers._send_outcome import committed as committed
from trio_stomp.broker.headers._send_outcome import hint_of as hint_of
from trio_stomp.broker.headers._send_outcome import matched as matched
from trio_stomp.broker.headers._send_outcome import of_run as of_run
from trio_stomp.broker.headers._send_outcome import parked as parked
from trio_stomp.broker.headers._send_outcome import unmatched as unmatched
from trio_stomp.broker.headers._send_outcome import volatile_warning as volatile_warning
from trio_stomp.broker.headers._stored_head import decode_head as decode_head
from trio_stomp.broker.headers._stored_head import encode_head as encode_head
from trio_stomp.broker.headers._stream_options import END_MARK as END_MARK
from trio_stomp.broker.headers._stream_options import ID_MARK as ID_MARK
from trio_stomp.broker.headers._stream_options import STREAM_HEADERS as STREAM_HEADERS
from trio_stomp.broker.headers._stream_options import Start as Start
from trio_stomp.broker.headers._stream_options import StreamOptions as StreamOptions
from trio_stomp.broker.headers._stream_options import parse_stream_options as parse_stream_options
from trio_stomp.broker.headers._subscribe_options import PREFETCH_COUNT_MAX as PREFETCH_COUNT_MAX
from trio_stomp.broker.headers._subscribe_options import SUBSCRIBE_HEADERS as SUBSCRIBE_HEADERS
from trio_stomp.broker.headers._subscribe_options import SubscribeOptions as SubscribeOptions
from trio_stomp.broker.headers._subscribe_options import durable_name as durable_name
from trio_stomp.broker.headers._subscribe_options import (
    parse_subscribe_options as parse_subscribe_options,
)
