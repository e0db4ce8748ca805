"""Which tasks ran."""

import trio


class Steps(trio.abc.Instrument):
    """Counts the steps of the tasks whose names end so."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith(self.names)
