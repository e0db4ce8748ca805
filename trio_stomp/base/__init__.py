"""Values shared by all floors: errors, identities, options, memory budgets.

Handles: types that any module may import.
Does not handle: anything that depends on another room.
"""

from trio_stomp.base._cluster import Cluster as Cluster
from trio_stomp.base._cluster import ClusterFigures as ClusterFigures
from trio_stomp.base._cluster import NodeFigures as NodeFigures
from trio_stomp.base._errors import PASSING_CODES as PASSING_CODES
from trio_stomp.base._errors import BrokenInvariant as BrokenInvariant
from trio_stomp.base._errors import CloseReason as CloseReason
from trio_stomp.base._errors import FrameBug as FrameBug
from trio_stomp.base._errors import FrameError as FrameError
from trio_stomp.base._errors import OptionError as OptionError
from trio_stomp.base._errors import ProtocolError as ProtocolError
from trio_stomp.base._errors import RemoteError as RemoteError
from trio_stomp.base._errors import StompError as StompError
from trio_stomp.base._exposed import READ as READ
from trio_stomp.base._exposed import WRITE as WRITE
from trio_stomp.base._exposed import exposed as exposed
from trio_stomp.base._groups import first_of as first_of
from trio_stomp.base._groups import innermost as innermost
from trio_stomp.base._groups import sole as sole
from trio_stomp.base._identity import ANONYMOUS as ANONYMOUS
from trio_stomp.base._identity import ANONYMOUS_NAME as ANONYMOUS_NAME
from trio_stomp.base._identity import Identity as Identity
from trio_stomp.base._loopback import is_every_address as is_every_address
from trio_stomp.base._loopback import is_loopback as is_loopback
from trio_stomp.base._memory import UNBOUNDED as UNBOUNDED
from trio_stomp.base._memory import MemoryBudget as MemoryBudget
from trio_stomp.base._memory import Quota as Quota
from trio_stomp.base._memory import Stake as Stake
from trio_stomp.base._noop import noop as noop
from trio_stomp.base._option import CHOICES as CHOICES
from trio_stomp.base._option import HELP as HELP
from trio_stomp.base._option import LIVE as LIVE
from trio_stomp.base._option import MAX_INTEGER as MAX_INTEGER
from trio_stomp.base._option import MINIMUM as MINIMUM
from trio_stomp.base._option import option as option
from trio_stomp.base._percentile import percentile as percentile
from trio_stomp.base._pieces import LOOKS as LOOKS
from trio_stomp.base._pieces import RECORDS as RECORDS
from trio_stomp.base._pieces import Greatest as Greatest
from trio_stomp.base._pieces import Pieces as Pieces
from trio_stomp.base._pieces import first_by_name as first_by_name
from trio_stomp.base._pieces import greatest as greatest
from trio_stomp.base._pieces import slices as slices
from trio_stomp.base._size import rounded_size as rounded_size
from trio_stomp.base._value import value as value
from trio_stomp.base.schema import PAGE as PAGE
from trio_stomp.base.schema import PREFIX as PREFIX
from trio_stomp.base.schema import SCHEMA_VERSION as SCHEMA_VERSION
from trio_stomp.base.schema import TABLES as TABLES
from trio_stomp.base.schema import Field as Field
from trio_stomp.base.schema import Table as Table
