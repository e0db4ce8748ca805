"""Streams: topics whose messages are kept and can be read from any offset.

Handles: offsets, readers, retention, requests for a stream's bounds.
Does not handle: files; see ``store.streams``.
"""

from trio_stomp.broker.streams._stream import Stream as Stream
from trio_stomp.broker.streams._stream import StreamRun as StreamRun
from trio_stomp.broker.streams._stream_queries import StreamQueries as StreamQueries
from trio_stomp.broker.streams._stream_reader import StreamReader as StreamReader
from trio_stomp.broker.streams._stream_reader import request_offset as request_offset
from trio_stomp.broker.streams._stream_reader import request_runs as request_runs
from trio_stomp.broker.streams._streams import FIRST as FIRST
from trio_stomp.broker.streams._streams import Retention as Retention
from trio_stomp.broker.streams._streams import Streams as Streams
from trio_stomp.broker.streams._streams import stream_name as stream_name
from trio_stomp.broker.streams._streams import topics_of as topics_of
