"""Floor 0: bytes ↔ frames.

Handles: framing, escaping and limits of STOMP 1.0, 1.1 and 1.2.
Does not handle: the order of frames, and their effects; see ``protocol``.
"""

from trio_stomp.frames._cost import head_cost as head_cost
from trio_stomp.frames._cost import text_cost as text_cost
from trio_stomp.frames._decoder import FrameDecoder as FrameDecoder
from trio_stomp.frames._decoder import HeadCache as HeadCache
from trio_stomp.frames._encoder import FRAME_END as FRAME_END
from trio_stomp.frames._encoder import encode_frame as encode_frame
from trio_stomp.frames._encoder import encode_header as encode_header
from trio_stomp.frames._encoder import encode_receipt as encode_receipt
from trio_stomp.frames._encoder import message_blocks as message_blocks
from trio_stomp.frames._encoder import message_tail as message_tail
from trio_stomp.frames._encoder import message_tails as message_tails
from trio_stomp.frames._encoder import redelivered_head as redelivered_head
from trio_stomp.frames._encoder import subscription_prefix as subscription_prefix
from trio_stomp.frames._frame import ABORT as ABORT
from trio_stomp.frames._frame import ACK as ACK
from trio_stomp.frames._frame import BEGIN as BEGIN
from trio_stomp.frames._frame import COMMIT as COMMIT
from trio_stomp.frames._frame import CONNECT as CONNECT
from trio_stomp.frames._frame import CONNECTED as CONNECTED
from trio_stomp.frames._frame import DEDUP_HEADERS as DEDUP_HEADERS
from trio_stomp.frames._frame import DIAG as DIAG
from trio_stomp.frames._frame import DISCONNECT as DISCONNECT
from trio_stomp.frames._frame import ERROR as ERROR
from trio_stomp.frames._frame import MESSAGE as MESSAGE
from trio_stomp.frames._frame import NACK as NACK
from trio_stomp.frames._frame import RECEIPT as RECEIPT
from trio_stomp.frames._frame import SECRET_HEADERS as SECRET_HEADERS
from trio_stomp.frames._frame import SEND as SEND
from trio_stomp.frames._frame import STOMP as STOMP
from trio_stomp.frames._frame import SUBSCRIBE as SUBSCRIBE
from trio_stomp.frames._frame import TEXT as TEXT
from trio_stomp.frames._frame import UNESCAPED as UNESCAPED
from trio_stomp.frames._frame import UNSUBSCRIBE as UNSUBSCRIBE
from trio_stomp.frames._frame import UNTIL_NUL as UNTIL_NUL
from trio_stomp.frames._frame import AckRun as AckRun
from trio_stomp.frames._frame import Frame as Frame
from trio_stomp.frames._frame import FrameRun as FrameRun
from trio_stomp.frames._frame import Head as Head
from trio_stomp.frames._frame import Headers as Headers
from trio_stomp.frames._headers import encode_text as encode_text
from trio_stomp.frames._headers import excerpt as excerpt
from trio_stomp.frames._headers import is_blank as is_blank
from trio_stomp.frames._headers import parse_head as parse_head
from trio_stomp.frames._limits import FrameLimits as FrameLimits
from trio_stomp.frames._rules import OPENING as OPENING
from trio_stomp.frames._rules import V1_0 as V1_0
from trio_stomp.frames._rules import V1_1 as V1_1
from trio_stomp.frames._rules import V1_2 as V1_2
from trio_stomp.frames._rules import HeaderRules as HeaderRules
from trio_stomp.frames._rules import Side as Side
