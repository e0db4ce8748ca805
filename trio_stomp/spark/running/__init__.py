"""Runs Spark for the commands: the sidecar that follows a stream, the analysis, a demo.

Handles: the check before Spark starts, progress, signals, errors in one line.
Does not handle: the command line (``trio-stomp spark`` and the scripts have it).
"""

from trio_stomp.spark.running._demo import run_demo as run_demo
from trio_stomp.spark.running._report import NOTEBOOK_FILE as NOTEBOOK_FILE
from trio_stomp.spark.running._report import make_report as make_report
from trio_stomp.spark.running._sidecar import Sidecar as Sidecar
from trio_stomp.spark.running._sidecar import SidecarError as SidecarError
from trio_stomp.spark.running._sidecar import cause as cause
from trio_stomp.spark.running._sidecar import run_sidecar as run_sidecar
