"""Browsers, and what operators do."""

import time
from collections import deque

from _crash.link import Reply

from _combinations.model import SCHEDULED, Copy, Queue
from _combinations.scene import Scene, Step, body_of
from _combinations.wire import PATIENCE_S, Finding, frame, manage


def browse(scene: Scene, step: Step) -> str | None:
    """Browse a queue, with a selector."""
    name = scene.names[step.to % len(scene.names)]
    model, receipt = scene.model, scene.wires.receipt()
    id = f"b{receipt}"
    headers = {"id": id, "destination": name, "browser": "true", "receipt": receipt}
    headers["selector"] = f"sort = '{step.sort}'" if step.sort else ""
    scene.wires.ask(step.link, frame("SUBSCRIBE", headers), receipt)
    deadline, seen = time.monotonic() + PATIENCE_S, list[Reply]()
    replies = scene.wires.heard.setdefault((step.link, id), deque())
    while not seen or seen[-1].headers.get("browser") != "end":
        if time.monotonic() > deadline:
            raise Finding(f"a browse of {name} does not end")
        scene.wires.listen()
        while replies:
            seen.append(replies.popleft())
    del scene.wires.heard[step.link, id]
    model.pass_time()
    waiting = [
        copy for copy in model.queue(name).waiting() if step.sort in ("", copy.headers.get("sort"))
    ]
    compare(scene, f"browse of {name}", waiting, [body_of(reply) for reply in seen[:-1]])
    return f"connection {step.link}: browse {name} {headers['selector']}"


def compare(scene: Scene, what: str, waiting: list[Copy], bodies: list[str]) -> None:
    now = scene.model.now
    sure = [copy.body for copy in waiting if copy.surely_waits(now)]
    unsure = {
        copy.body
        for q in scene.model.queues.values()
        for copy in q.copies
        if copy.is_unsure(now) or copy.state == SCHEDULED or copy.is_ghost
    }
    missing = [body for body in sure if body not in bodies]
    extra = [body for body in bodies if body not in sure and body not in unsure]
    if missing or extra:
        told = f"{what} shows {len(bodies)} messages: {len(missing)} are missing: {missing[:9]}"
        raise Finding(f"{told}, {len(extra)} should not be there: {extra[:9]}")


def manage_queue(scene: Scene, step: Step) -> str | None:
    """An operator's action."""
    model, verb = scene.model, step.how
    queue = model.queues[scene.names[step.to % len(scene.names)]]
    parameters = {"queue": queue.name}
    waiting = queue.waiting()
    timed = any(
        copy.is_unsure(model.now) or copy.state == SCHEDULED or copy.is_ghost
        for copy in queue.copies
    )
    if timed or queue not in model.queues.values():
        return None
    target: Queue | None = None
    if verb == "move":
        target = model.queues[scene.names[(step.to + 1 + step.pick) % len(scene.names)]]
        if target is queue or target.policy.max_messages or target.policy.ttl_ms:
            return None
        parameters["to"] = target.name
    answer = manage(scene.port, verb, **parameters)
    model.now = time.monotonic()
    told = f"operator: {verb} {parameters} -> {answer}"
    if answer.get("code") == "no-such-queue" and not queue.copies:
        return told
    if "error" in answer:
        raise Finding(told)
    count: object = None
    if verb == "purge":
        for copy in waiting:
            queue.gone(copy, "purged")
        count = answer["purged"], len(waiting)
    elif verb == "move" and target is not None:
        for copy in waiting:
            queue.gone(copy, "moved")
            copy.at, copy.deliveries, copy.failures = (model.tick(),) * 2, (0, 0), 0
            if len({each.is_durable for each in waiting}) > 1:
                copy.at = model.began, model.now  # the durable ones come later
            copy.ends = copy.ends_alone
            copy.may_survive = not copy.is_durable
            copy.is_durable = target.policy.stores(is_persistent=copy.is_durable)
            copy.headers.pop("x-death-reason", None)
            copy.headers.pop("original-destination", None)
            model.admit(target, copy)
        count = answer["moved"], len(waiting)
    elif verb == "redeliver":
        held = 0
        for sub in scene.subs.values():
            for name, (source, copy) in list(sub.held.items()):
                if source is queue:
                    del sub.held[name]
                    model.back(queue, copy)
                    held += 1
        count = answer["redelivered"], held
    elif verb in ("pause", "resume"):
        queue.is_paused = verb == "pause"
    if isinstance(count, tuple) and count[0] != count[1]:
        raise Finding(f"{told}, but the model has {count[1]}")
    return told
