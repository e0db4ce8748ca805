"""The report: results of the analysis as one page of HTML.

Handles: findings in words, plots, tables, style.
Does not handle: the analysis itself.
"""

from trio_stomp.spark.reporting._report import report as report
