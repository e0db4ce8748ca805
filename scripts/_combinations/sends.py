"""SENDs: alone, to several destinations, delayed, in transactions, and very many at once."""

import time
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from _crash.link import Reply

from _combinations.model import NEVER, SCHEDULED, Copy, Queue, Sub
from _combinations.policy import DROPS_OLD
from _combinations.scene import Scene, Step
from _combinations.wire import Finding, frame

SAVED = (0.9, 0.1)
"""The shares of durable messages in the floods of two connections."""
CHUNK = 20
"""Messages that one of two connections sends at once."""


def copy_of(scene: Scene, step: Step, queue: Queue, body: str) -> Copy:
    """Return the message that a SEND makes in a queue."""
    model, policy = scene.model, queue.policy
    headers = {"sort": step.sort, "JMSXGroupID": step.group}
    lives = [int(each) / 1000 for each in (step.ttl, policy.ttl_ms) if each]
    life_s = min(lives, default=NEVER)
    delay_s = int(step.delay or 0) / 1000
    copy = Copy(
        body,
        {name: value for name, value in headers.items() if value},
        int(step.priority or 4) if policy.priority else 4,
        (model.tick(),) * 2,
        policy.stores(is_persistent=step.saved) and bool(scene.store),
        (model.began + life_s, time.monotonic() + life_s),
    )
    life_s = int(step.ttl) / 1000 if step.ttl else NEVER
    copy.ends_alone = model.began + life_s, time.monotonic() + life_s
    if delay_s:
        copy.state = SCHEDULED
        copy.due = model.began + delay_s, time.monotonic() + delay_s
        copy.at = copy.since = copy.due[0], copy.due[1] + 2
        copy.ends = NEVER, NEVER
    return copy


def targets(scene: Scene, to: int) -> tuple[str, list[Queue]]:
    """Return a destination, and the queues that get what is sent there."""
    model, names = scene.model, scene.names
    if to < len(names):
        return names[to], [model.queues[names[to]]]
    if to == len(names):
        return f"{names[0]},{names[1]}", [model.queues[names[0]], model.queues[names[1]]]
    return scene.topic, [queue for queue in model.queues.values() if queue.is_binding]


def send_frame(scene: Scene, step: Step, to: str, **more: str) -> tuple[str, str]:
    """Return a SEND and its body."""
    scene.sent += 1
    body = f"{scene.name}.{scene.sent}"
    headers = {
        "destination": to,
        "persistent": "true" if step.saved else "",
        "priority": step.priority,
        "sort": step.sort,
        "JMSXGroupID": step.group,
        "ttl": step.ttl,
        "x-dedup-id": step.id,
        "AMQ_SCHEDULED_DELAY": step.delay,
    }
    return frame("SEND", headers | more, body), body


def send(scene: Scene, step: Step) -> str | None:
    to, queues = targets(scene, step.to)
    one = queues[0] if len(queues) == 1 and not queues[0].is_binding else None
    limited = any(queue.policy.max_messages for queue in queues)
    if step.delay and (limited or one is None or one.policy.ttl_ms):
        step = replace(step, delay="")
    if one is None or step.delay:
        step = replace(step, id="")
    if step.delay or to == scene.topic:
        step = replace(step, ttl="")
    frames, asked = "", []
    for _ in range(1 if limited and one is None else step.count):
        receipt = scene.wires.receipt()
        text, body = send_frame(scene, step, to, receipt=receipt)
        frames += text
        asked.append((receipt, body))
    line = frames.partition("\0")[0].replace("\n", " ")
    told = f"connection {step.link}: {len(asked)} x {line}"
    if one is not None and one.policy.overflow == "block" and one.is_full(len(asked)):
        return wait_for_room(scene, step, one, *asked[0]) if len(asked) == 1 else None
    answers = scene.wires.ask(step.link, frames, *(receipt for receipt, _ in asked))
    scene.model.now = time.monotonic()
    for receipt, body in asked:
        answer = answers.get(receipt)
        copies = [(queue, copy_of(scene, step, queue, body)) for queue in queues]
        if len(copies) > 1:
            store_together(copies)
        if answer is None:
            refused(scene, step.link, answers["error"], copies)
            told += " -> ERROR"
            break
        taken(scene, step, copies, answer)
        told += f" -> {body} {answer.headers.get('stored', '')}"
    return told


def wait_for_room(scene: Scene, step: Step, queue: Queue, receipt: str, body: str) -> str | None:
    """Send a message that has to wait for room, unless another waits."""
    if any(each is queue for each, _ in scene.blocked.values()) or step.id:
        return None
    if any(link == step.link for link, _ in scene.subs):  # its ACKs would wait behind the SEND
        return None
    text, _ = send_frame(scene, step, queue.name, receipt=receipt)
    scene.sent -= 1
    scene.wires.send(step.link, text.replace(f"{scene.name}.{scene.sent + 1}\0", f"{body}\0"))
    copy = copy_of(scene, step, queue, body)
    scene.blocked[receipt], scene.wires.waits[step.link] = (queue, copy), receipt
    return f"connection {step.link}: SEND of {body} to {queue.name} waits for room"


def refused(scene: Scene, link: int, error: Reply, copies: list[tuple[Queue, Copy]]) -> None:
    full = [q for q, _ in copies if q.is_full() and q.policy.overflow in ("reject", "block")]
    if error.headers.get("code") != "queue-full" or not full:
        raise Finding(f"unexpected ERROR: {error.headers}")
    scene.left(link)


def taken(scene: Scene, step: Step, copies: list[tuple[Queue, Copy]], answer: Reply) -> None:
    """Note a SEND that has its RECEIPT."""
    is_double = is_dropped = False
    for queue, copy in copies:
        if step.id and queue.policy.dedup_window:
            is_double = step.id in queue.ids
            if is_double:
                continue
        if queue.is_binding and not binds(scene, queue, copy):
            continue
        why = scene.model.admit(queue, copy)
        if why and why != "drop-newest":
            raise Finding(f"RECEIPT of {copy.body} for {queue.name}, which is full: {why}")
        is_dropped |= bool(why)
        if step.id and not why:
            queue.ids[step.id] = copy.is_durable
            while len(queue.ids) > queue.policy.dedup_window:
                del queue.ids[next(iter(queue.ids))]
        wanted = scene.store if copy.is_durable else "memory"
        is_told = len(copies) == 1 and not queue.is_binding and not why
        if is_told and answer.headers.get("stored") != wanted:
            raise Finding(f"{answer.headers}, but it should be stored:{wanted}")
    if (answer.headers.get("dropped") == "queue-full") != is_dropped:
        raise Finding(f"{answer.headers}, but dropped is {is_dropped}")
    if (answer.headers.get("duplicate") == "true") != is_double:
        raise Finding(f"{answer.headers}, but duplicate is {is_double}")


def stores(scene: Scene, step: Step) -> bool:
    """Return whether a SEND to the topic is durable."""
    return scene.topic_policy.stores(is_persistent=step.saved) and bool(scene.store)


def binds(scene: Scene, queue: Queue, copy: Copy) -> bool:
    sort = scene.bindings[queue.name.partition("|")[0]]
    return not sort or copy.headers.get("sort") == sort


def commit(scene: Scene, step: Step) -> str | None:
    """A transaction of SENDs, and of ACKs or NACKs of what its connection holds."""
    text = frame("BEGIN", {"transaction": "t"})
    sent: list[tuple[Step, list[Queue], str]] = []
    for each in step.inner:
        each = replace(each, id="", delay="", ttl="" if each.to > 3 else each.ttl)
        to, queues = targets(scene, each.to)
        send, body = send_frame(scene, each, to, transaction="t")
        text += send
        sent.append((each, queues, body))
    subs = [sub for (link, _), sub in scene.subs.items() if link == step.link and sub.held]
    acked: list[tuple[Sub, str]] = []
    if subs and step.count:
        sub = subs[step.pick % len(subs)]
        acked = [(sub, name) for name in list(sub.held)[: step.count]]
        sub.extra = len(acked)
        for _, name in acked:
            verb = "ACK" if step.how == "ack" else "NACK"
            text += frame(verb, {"id": name, "transaction": "t"})
    verb, receipt = ("ABORT" if step.exclusive else "COMMIT"), scene.wires.receipt()
    text += frame(verb, {"transaction": "t", "receipt": receipt})
    told = f"connection {step.link}: {text!r}"
    wanted: dict[Queue, int] = {}
    for _, queues, _ in sent:
        for queue in queues:
            wanted[queue] = wanted.get(queue, 0) + 1
    lenient = (*DROPS_OLD, "drop-newest")
    full = [q for q, n in wanted.items() if q.is_full(n) and q.policy.overflow not in lenient]
    answers = scene.wires.ask(step.link, text, receipt)
    scene.model.now = time.monotonic()
    if verb == "ABORT":
        if "error" in answers:
            raise Finding(f"unexpected ERROR: {answers['error'].headers}")
        return told
    if ("error" in answers) != bool(full):
        raise Finding(f"COMMIT: {answers}, full are {[queue.name for queue in full]}")
    if full:
        scene.left(step.link)
        return told + " -> ERROR"
    copies = [(q, copy_of(scene, each, q, body)) for each, queues, body in sent for q in queues]
    others = [sub.held[name][1].is_durable for sub, name in acked]
    others += [stores(scene, each) for each, _, _ in sent if each.to > len(scene.names)]
    store_together(copies, others)
    for queue, copy in copies:
        if not queue.is_binding or binds(scene, queue, copy):
            scene.model.admit(queue, copy)
    for sub, name in acked:
        if name in sub.held:
            scene.model.settle(sub, name, step.how if step.how == "ack" else "nack")
    return told


def flood(scene: Scene, step: Step) -> str | None:
    """Send many messages to a queue from two connections at once, some of them durable."""
    to, (queue,) = targets(scene, step.to)
    dice, links = Random(step.id), [step.link, (step.link + 1) % 3]
    if queue.policy.max_messages or any(link in scene.wires.waits for link in links):
        return None
    sent: list[tuple[Step, str, tuple[int, int]]] = []
    last = {}
    for start in range(0, step.count, CHUNK):
        link = links[start // CHUNK % 2]
        frames = ""
        for n in range(start, start + CHUNK):
            each = replace(
                step,
                link=link,
                saved=dice.random() < SAVED[links.index(link)],
                sort=dice.choice("ab" + "c" * 8) if step.sort else "",
                group=dice.choice(("g", "h", "")) if step.group else "",
                priority=dice.choice(("4", "4", "4", "9")) if step.priority else "",
                id="",
            )
            last[link] = scene.wires.receipt()
            receipt = last[link] if n == start + CHUNK - 1 else ""
            text, body = send_frame(scene, each, to, receipt=receipt)
            frames += text.replace(f"{body}\0", f"{body} {'x' * dice.randrange(800)}\0")
            sent.append((each, body, (link, scene.sent)))
        scene.wires.send(link, frames)
    errors = ["error" in scene.wires.ask(link, "", receipt) for link, receipt in last.items()]
    scene.is_over = any(errors)
    scene.model.now = time.monotonic()
    for each, body, flow in sent:
        copy = copy_of(scene, each, queue, body)
        copy.at, copy.flow = (scene.model.began, scene.model.now), flow
        scene.model.admit(queue, copy)
    return f"connections {links}: {len(sent)} x SEND to {to}, {step}"


def store_together(copies: list[tuple[Queue, Copy]], others: Iterable[bool] = ()) -> None:
    """Make the messages of a group durable if one is, or anything else of the group."""
    if any((*(copy.is_durable for _, copy in copies), *others)):
        for queue, copy in copies:
            copy.is_durable |= not queue.is_binding
