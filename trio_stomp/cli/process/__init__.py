"""The process that a broker runs in: its memory, signals to systemd, the compiled variant."""

from trio_stomp.cli.process._allocator import Allocator as Allocator
from trio_stomp.cli.process._process import SPARE_FILES as SPARE_FILES
from trio_stomp.cli.process._process import raise_file_limit as raise_file_limit
from trio_stomp.cli.process._process import set_up_garbage_collection as set_up_garbage_collection
from trio_stomp.cli.process._process import set_up_threads as set_up_threads
from trio_stomp.cli.process._systemd import feed_watchdog as feed_watchdog
from trio_stomp.cli.process._systemd import handed_over as handed_over
from trio_stomp.cli.process._systemd import notify as notify
from trio_stomp.cli.process._systemd import tell_starting as tell_starting
from trio_stomp.cli.process._variant import variant_suffix as variant_suffix
