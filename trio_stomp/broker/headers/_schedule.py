"""Delayed and repeated messages: the AMQ_SCHEDULED headers and their due times.

The headers are ActiveMQ's ("Delay and Schedule Message Delivery"; where that page is silent, the
behaviour is that of its scheduler):

- DELAY: ms from the SEND to the first delivery. TIME (Artemis), in ms since 1970, overrides it.
- PERIOD and REPEAT: REPEAT more deliveries follow, PERIOD ms apart; -1 = without end. With neither
  DELAY nor TIME, the first delivery also waits one PERIOD.
- CRON: five fields, in UTC. Alone, one delivery at each firing, regardless of DELAY. With REPEAT,
  each firing starts the whole sequence: after DELAY (or one PERIOD) the first delivery, then REPEAT
  more. A firing during a sequence is skipped. (In ActiveMQ sequences overlap without limit.)

AMQ_SCHEDULER_ACTION, sent to ActiveMQ.Scheduler.Management, removes schedules: REMOVE the one with
scheduledJobId, REMOVEALL those that are due between ACTION_START_TIME and ACTION_END_TIME.

Handles: parsing, limits, due times. Does not handle: clocks, storage, delivery.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from attrs import frozen

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker.headers._dialect import capped
from trio_stomp.frames import Head

Lookup = Callable[[str], str | None]
"""Returns the text of a header, or None."""

DELAY = "AMQ_SCHEDULED_DELAY"
TIME = "AMQ_SCHEDULED_TIME"
PERIOD = "AMQ_SCHEDULED_PERIOD"
REPEAT = "AMQ_SCHEDULED_REPEAT"
CRON = "AMQ_SCHEDULED_CRON"

_OF_ACTIVEMQ = "ActiveMQ.Scheduler.Management"
MANAGEMENT = frozenset({_OF_ACTIVEMQ, f"/topic/{_OF_ACTIVEMQ}", f"/queue/{_OF_ACTIVEMQ}"})
"""The scheduler's destination, in the spellings of all dialects."""
ACTION = "AMQ_SCHEDULER_ACTION"
JOB = "scheduledJobId"
BEGIN, END = "ACTION_START_TIME", "ACTION_END_TIME"
SCHEDULE_HEADERS = (DELAY, TIME, PERIOD, REPEAT, CRON, JOB, BEGIN, END)
MAX_NUMBER = 10**18 - 1

FOREVER = -1
MAX_AHEAD_MS = 3653 * 24 * 3600 * 1000
"""Ten years: the limit of delays, periods and first deliveries."""
LAST_MS = 253_402_300_799_999
"""The end of the standard library's calendar: the last ms of the year 9999."""
MAX_TIME_MS = LAST_MS - MAX_AHEAD_MS
"""Ten years before that."""
MAX_REPEAT = 1_000_000
MANY = 1000
"""More repetitions than this (ActiveMQ's limit) need a period of ``MIN_PERIOD_OF_MANY_MS``."""
MIN_PERIOD_OF_MANY_MS = 100
"""The shortest period of more than ``MANY`` repetitions."""
MAX_CRON_CHARS = 128

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@frozen
class Schedule:
    """The due time of a message, and its repetitions.

    Args:
      delay_ms: From the SEND, or from a firing of ``cron``, to the first delivery.
      time_ms: The first delivery in ms since 1970; 0 = ``delay_ms`` applies.
      period_ms: From one delivery to the next; 0 = no next.
      repeat: Deliveries after the first; FOREVER = no end. With ``cron``, of each firing.
      cron: Five fields; "" = none.
    """

    delay_ms: int = 0
    time_ms: int = 0
    period_ms: int = 0
    repeat: int = 0
    cron: str = ""

    def first_due(self, now_ms_wall: int) -> int:
        """Return the due time of the first delivery in ms since 1970, not before now.

        Args:
          now_ms_wall: The time of the SEND, in ms since 1970.

        Raises:
          ProtocolError: ``invalid-schedule``: It is not within ten years.
        """
        if self.cron:
            due = self._fires_after(now_ms_wall)
            if due is None:
                raise _invalid(CRON, self.cron, "must fire within ten years")
            return due
        if not self.time_ms:
            return now_ms_wall + self._lead_ms
        if self.time_ms > now_ms_wall + MAX_AHEAD_MS:
            raise _invalid(TIME, str(self.time_ms), "must lie within ten years from now")
        return max(self.time_ms, now_ms_wall)

    def is_by_day(self, sent: int) -> bool:
        """Return whether the delivery after ``sent`` others is due at a time of day.

        Otherwise it is due some ms after the previous delivery or the SEND.
        """
        return bool(self.cron and not sent % (self.repeat + 1)) or (not sent and self.time_ms > 0)

    def next_due(self, previous_ms: int, sent: int) -> int | None:
        """Return the due time of the next delivery, or None if there is none.

        Args:
          previous_ms: The due time of the last delivery, or its actual time to skip missed ones.
          sent: Deliveries so far, at least 1.
        """
        if not self.cron:
            done = self.repeat != FOREVER and sent > self.repeat
            return None if done else previous_ms + self.period_ms
        if sent % (self.repeat + 1):
            return previous_ms + self.period_ms
        return self._fires_after(previous_ms)

    @property
    def _lead_ms(self) -> int:
        return self.delay_ms or self.period_ms

    def _fires_after(self, moment_ms: int) -> int | None:
        """Return the first delivery of the next firing after ``moment_ms``, or None."""
        from cronsim import CronSim

        try:
            moment = _EPOCH + moment_ms * _MILLISECOND
            fires_ms = (next(CronSim(self.cron, moment)) - _EPOCH) // _MILLISECOND
        except (StopIteration, OverflowError):
            return None
        lead_ms = self._lead_ms if self.repeat else 0
        return fires_ms + lead_ms if fires_ms - moment_ms <= MAX_AHEAD_MS else None


@frozen
class Removal:
    """A request to remove scheduled messages, by their numbers and due times.

    Args:
      first, last: The range of numbers, both included.
      begin_ms, end_ms: The range of due times in ms since 1970, both included.
    """

    first: int = 0
    last: int = MAX_NUMBER
    begin_ms: int = 0
    end_ms: int = MAX_NUMBER


def removal_of(text: str) -> Removal:
    """Return the schedules with a number, or with those of a range, as 17-20: all of one SEND.

    Raises:
      ProtocolError: ``invalid-schedule``: The text is no number and no range.
    """
    first, dash, last = text.partition("-")
    last = last if dash else first
    if not all(part.isascii() and part.isdecimal() for part in (first, last)):
        raise _invalid(JOB, text, "must be the number from the RECEIPT of its SEND")
    return Removal(capped(first), capped(last))


def parse_removal(headers: Head) -> Removal | None:
    """Return the schedules that a SEND to the scheduler's destination removes, or None.

    Raises:
      ProtocolError: ``invalid-schedule``: A header is invalid.
    """
    action = headers.get(ACTION)
    if action is None:
        return None
    match action.strip().upper():
        case "REMOVE":
            return removal_of(headers.get(JOB) or "")
        case "REMOVEALL":
            begin_ms = _number(headers.get, BEGIN, 0, MAX_NUMBER)
            return Removal(
                begin_ms=begin_ms, end_ms=_number(headers.get, END, 0, MAX_NUMBER) or MAX_NUMBER
            )
    raise _invalid(ACTION, action, "must be REMOVE or REMOVEALL; DIAG/left lists them")


def parse_schedule(headers: Head | Lookup) -> Schedule | None:
    """Return the schedule in the headers of a SEND, or None to deliver at once.

    The number 0 and an empty CRON have no effect. Limits: ``MAX_AHEAD_MS``, ``MAX_REPEAT``,
    ``MAX_CRON_CHARS``; REPEAT needs a PERIOD of at least 1 ms, or ``MIN_PERIOD_OF_MANY_MS`` if it
    is more than ``MANY``.

    Raises:
      ProtocolError: ``invalid-schedule``: A header is invalid. ``unsupported``: The library for
        CRON is not installed.
    """
    lookup = headers.get if isinstance(headers, Head) else headers
    period_ms = _number(lookup, PERIOD, 0, MAX_AHEAD_MS)
    schedule = Schedule(
        delay_ms=_number(lookup, DELAY, 0, MAX_AHEAD_MS),
        time_ms=_number(lookup, TIME, 0, MAX_TIME_MS),
        period_ms=period_ms,
        repeat=_repeat(lookup, period_ms),
        cron=" ".join((lookup(CRON) or "").split()),
    )
    if schedule.cron:
        _check_cron(schedule)
    elif not (schedule.delay_ms or schedule.time_ms or schedule.period_ms):
        return None
    return schedule


def _invalid(header: str, text: str, rule: str) -> ProtocolError:
    return ProtocolError("invalid-schedule", f"{header}:{text[:40]} {rule}")


def _number(lookup: Lookup, header: str, least: int, most: int) -> int:
    """Return the whole number in ``header``, or 0 without this header."""
    text = lookup(header)
    if text is None:
        return 0
    digits = text.strip()
    # 18 characters are enough for each limit. Longer texts are not converted.
    if len(digits) <= 18 and digits.isascii() and digits.removeprefix("-").isdecimal():
        number = int(digits)
        if least <= number <= most:
            return number
    raise _invalid(header, text, f"must be a whole number from {least} to {most}")


def _repeat(lookup: Lookup, period_ms: int) -> int:
    """Return REPEAT, after a check that PERIOD allows it."""
    repeat = _number(lookup, REPEAT, FOREVER, MAX_REPEAT)
    if repeat and not period_ms:
        raise _invalid(REPEAT, str(repeat), f"needs {PERIOD} of at least 1 ms")
    if (repeat == FOREVER or repeat > MANY) and period_ms < MIN_PERIOD_OF_MANY_MS:
        rule = f"needs {PERIOD} of at least {MIN_PERIOD_OF_MANY_MS} ms; {MANY} or less do not"
        raise _invalid(REPEAT, str(repeat), rule)
    return repeat


def _check_cron(schedule: Schedule) -> None:
    """Check CRON, alone and with the other headers.

    Raises:
      ProtocolError: It is invalid, or conflicts with another header.
    """
    cron = schedule.cron
    if schedule.time_ms:
        raise _invalid(CRON, cron, f"and {TIME} both set the time: leave one of them out")
    if schedule.repeat == FOREVER:
        raise _invalid(REPEAT, str(FOREVER), f"would never let {CRON} fire again; set a limit")
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise ProtocolError(
            "unsupported",
            f"{CRON}: this broker was installed without cron; its operator adds it with"
            " pip install cronsim",
            reason=CloseReason.UNSUPPORTED,
        ) from None
    rule = "must be five fields: minute, hour, day of month, month, day of week (0 = Sunday)"
    if len(cron) > MAX_CRON_CHARS or cron.count(" ") != 4:
        raise _invalid(CRON, cron, rule)
    try:
        CronSim(cron, _EPOCH)
    except CronSimError as error:
        raise _invalid(CRON, cron, f"{rule}; {str(error).lower()}") from None
