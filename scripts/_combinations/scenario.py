"""A scenario: steps that a few clients and an operator do one after the other, each one judged."""

import time
from collections.abc import Callable, Mapping

from _combinations.consumers import (
    DRAIN,
    ack_all,
    leave,
    settle,
    subscribe,
    take_all,
    unsubscribe,
    work,
)
from _combinations.operators import browse, manage_queue
from _combinations.scene import Scene, Step
from _combinations.sends import commit, flood, send
from _combinations.wire import PATIENCE_S, Finding, manage

VERBS: Mapping[str, Callable[[Scene, Step], str | None]] = {
    "send": send,
    "flood": flood,
    "commit": commit,
    "subscribe": subscribe,
    "settle": settle,
    "work": work,
    "unsubscribe": unsubscribe,
    "leave": leave,
    "browse": browse,
    "manage": manage_queue,
}
"""Does a step. Returns a description of it, or None if there was nothing to do."""


def do(scene: Scene, step: Step) -> None:
    """Do a step and judge what follows from it.

    Raises:
      Finding: the broker did something else than the model.
    """
    if scene.is_over:
        return
    scene.begin()
    if step.link in scene.wires.waits and step.verb in ("send", "subscribe", "commit", "browse"):
        return
    try:
        told = VERBS[step.verb](scene, step)
    except Finding:
        if not scene.model.straddles():
            raise
        told = None
    if scene.model.straddles():  # what the limit has done is not certain
        scene.is_over = True
        return
    if told is not None:
        scene.log += [told] if told else []
        scene.settle()


def drain(scene: Scene) -> None:
    """End all subscriptions, take what is left, and see that there is no more.

    Raises:
      Finding: something is missing, or comes again.
    """
    if scene.is_over:
        return
    scene.log.append("all leave, and a new consumer takes what is left")
    scene.begin()
    for link in list(scene.wires.links):
        leave(scene, Step("leave", link=link, how="disconnect"))
        scene.settle()
    for queue in scene.model.queues.values():
        if queue.is_paused:
            manage(scene.port, "resume", queue=queue.name)
            queue.is_paused = False
    deadline, drained = time.monotonic() + 4 * PATIENCE_S, set[str]()
    while True:
        for name in set(scene.model.queues) - drained:
            take_all(scene, scene.model.queues[name])
        drained = set(scene.model.queues)
        scene.settle()
        left = [
            (q.name, c) for q in scene.model.queues.values() for c in q.copies if not c.is_ghost
        ]
        for sub in list(scene.subs.values()):
            ack_all(scene, sub)
        if not left and not scene.blocked:
            break
        if time.monotonic() > deadline:
            raise Finding(f"does not end: {[(name, copy.body, copy.state) for name, copy in left]}")
        time.sleep(0.02)
    scene.settle()
    leave(scene, Step("leave", link=DRAIN, how="disconnect"))
