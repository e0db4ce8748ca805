"""Consumers: SUBSCRIBE, ACK and NACK, and the ways to leave."""

import time

from _combinations.model import DELAYED, SCHEDULED, Queue, Sub
from _combinations.scene import Scene, Step
from _combinations.wire import Finding, frame

MOST = 400
"""Messages that a consumer may hold, and less than its share of bytes."""
DRAIN = 9
"""The connection that takes what is left."""


def subscribe(scene: Scene, step: Step) -> str | None:
    if sum(link == step.link for link, _ in scene.subs) >= 4 and step.link != DRAIN:
        return None
    scene.next_sub += 1
    id, names, model = f"{scene.next_sub}", scene.names, scene.model
    headers = {"id": id, "ack": step.ack, "prefetch-count": f"{step.prefetch}"}
    headers["x-priority"] = f"{step.level}" if step.level else ""
    sub = Sub(id, step.link, "", step.ack, step.prefetch, step.sort, step.level, step.exclusive)
    if step.to == len(names) + 1:
        return bind(scene, step, sub, headers)
    if step.to == len(names):
        headers["destination"], queues = f"/queue/{scene.name}.*", names
    else:
        dead = model.dead_of(model.queues[names[step.to]])
        is_dead = step.pick % 4 == 0 and dead is not None
        headers["destination"] = dead.name if dead and is_dead else names[step.to]
        queues = [headers["destination"]]
    headers["selector"] = f"sort = '{step.sort}'" if step.sort else ""
    headers["exclusive"] = "true" if step.exclusive else ""
    sub.pattern = headers["destination"]
    for name in queues:
        model.queue(name).attach(sub)
    return subscribed(scene, sub, headers)


def bind(scene: Scene, step: Step, sub: Sub, headers: dict[str, str]) -> str:
    name = "de"[step.pick % 2]
    key = f"{name}|{scene.topic}"
    if key not in scene.model.queues:
        scene.model.queues[key] = Queue(key, scene.topic_policy, is_binding=True)
    sub.pattern, sub.sort, sub.exclusive = key, "", False
    sort = scene.bindings[name]
    headers |= {"destination": scene.topic, "durable": "true", "auto-delete": "false"}
    headers |= {"x-queue-name": f"{scene.name}{name}"}
    headers["selector"] = f"sort = '{sort}'" if sort else ""
    scene.model.queues[key].attach(sub)
    return subscribed(scene, sub, headers)


def subscribed(scene: Scene, sub: Sub, headers: dict[str, str]) -> str:
    scene.subs[sub.link, sub.id] = sub
    receipt = scene.wires.receipt()
    text = frame("SUBSCRIBE", headers | {"receipt": receipt})
    answers = scene.wires.ask(sub.link, text, receipt)
    if "error" in answers:
        raise Finding(f"unexpected ERROR: {answers['error'].headers}")
    return f"connection {sub.link}: " + text.replace("\n", " ").rstrip("\0")


def pick(scene: Scene, step: Step) -> Sub | None:
    subs = [sub for (link, _), sub in scene.subs.items() if link not in scene.wires.waits]
    return subs[step.pick % len(subs)] if subs else None


def settle(scene: Scene, step: Step) -> str | None:
    subs = [sub for sub in scene.subs.values() if sub.held]
    subs = [sub for sub in subs if sub.link not in scene.wires.waits]
    if not subs:
        return None
    sub = subs[step.pick % len(subs)]
    name = list(sub.held)[step.count % len(sub.held)]
    body, receipt = sub.held[name][1].body, scene.wires.receipt()
    headers = {"id": name, "receipt": receipt}
    headers |= {"requeue": "false"} if step.how == "reject" else {}
    answers = scene.wires.ask(
        sub.link, frame("ACK" if step.how == "ack" else "NACK", headers), receipt
    )
    if "error" in answers:
        raise Finding(f"{step.how} of {body}: unexpected ERROR: {answers['error'].headers}")
    scene.model.now = time.monotonic()
    scene.model.settle(sub, name, step.how)
    return f"connection {sub.link}: {step.how} of {body} by {sub.id}, ack:{sub.ack}"


def ack_all(scene: Scene, sub: Sub) -> None:
    """ACK all that a consumer holds."""
    if sub.held:
        receipt, names = scene.wires.receipt(), list(sub.held)
        acks = "".join(frame("ACK", {"id": name}) for name in names[:-1])
        last = frame("ACK", {"id": names[-1], "receipt": receipt})
        if "error" in scene.wires.ask(sub.link, acks + last, receipt):
            raise Finding(f"ERROR for ACKs of {sub.id}")
        scene.model.now = time.monotonic()
        for name in names:
            if name in sub.held:
                scene.model.settle(sub, name, "ack")


def work(scene: Scene, step: Step) -> str | None:
    """A consumer acknowledges all it gets, some times."""
    sub = pick(scene, step)
    if sub is None or not sub.held:
        return None
    scene.log.append(f"connection {sub.link}: {sub.id} acknowledges all, {step.count} times")
    for _ in range(step.count):
        ack_all(scene, sub)
        scene.settle()
    return ""


def unsubscribe(scene: Scene, step: Step) -> str | None:
    sub = pick(scene, step)
    if sub is None:
        return None
    receipt = scene.wires.receipt()
    text = frame("UNSUBSCRIBE", {"id": sub.id, "receipt": receipt})
    scene.wires.ask(sub.link, text, receipt)
    scene.left(sub.link, sub)
    return f"connection {sub.link}: UNSUBSCRIBE {sub.id}"


def leave(scene: Scene, step: Step) -> str | None:
    """DISCONNECT, close, or an invalid frame."""
    link, model = step.link, scene.model
    if link not in scene.wires.links or link in scene.wires.waits:
        return None
    timed = any(c.state in (DELAYED, SCHEDULED) for q in model.queues.values() for c in q.copies)
    if step.how == "drop" and not timed:
        scene.wires.drop(link)
    elif step.how == "disconnect":
        receipt = scene.wires.receipt()
        scene.wires.ask(link, frame("DISCONNECT", {"receipt": receipt}), receipt)
        scene.wires.listen_to_end(link)
    else:
        scene.wires.ask(link, frame("ACK", {"id": "nonsense", "receipt": "n"}), "n")
    scene.left(link, is_lost=step.how != "disconnect")
    return f"connection {link}: leaves ({step.how})"


def take_all(scene: Scene, queue: Queue) -> None:
    """Consume a queue."""
    if queue.is_binding:
        subscribe(scene, Step("", DRAIN, len(scene.names) + 1, pick="de".index(queue.name[0])))
        return
    scene.next_sub += 1
    sub = Sub(f"{scene.next_sub}", DRAIN, queue.name, "client-individual", MOST)
    queue.attach(sub)
    headers = {"destination": queue.name, "id": sub.id, "ack": sub.ack}
    subscribed(scene, sub, headers | {"prefetch-count": f"{MOST}"})
