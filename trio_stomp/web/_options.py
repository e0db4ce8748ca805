"""The options of the web floor."""

from attrs import frozen

from trio_stomp.base import option

MAX_DESTINATIONS = 10_000
"""The limit of named destinations, each of which costs Prometheus a time series per metric."""


@frozen
class WebOptions:
    """The options of the pages."""

    metrics_destinations: int = option(
        50,
        "number of destinations, and of queues, that /metrics reports individually; the others are "
        "added up",
        minimum=0,
    )

    def __attrs_post_init__(self) -> None:
        if self.metrics_destinations > MAX_DESTINATIONS:
            raise ValueError(
                f"metrics_destinations is {self.metrics_destinations}, but must be"
                f" {MAX_DESTINATIONS} or less"
            )
