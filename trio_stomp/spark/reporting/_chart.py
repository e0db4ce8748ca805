"""Plots as inline SVG, without scripts or image files, coloured by the page's style.

Colours are CSS variables (``--c1`` … ``--c6``), so that a plot fits the light and the dark style.
Tooltips are ``<title>`` elements, which browsers show themselves.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from html import escape
from math import floor, log, log10

from attrs import field, frozen

from trio_stomp.base import rounded_size
from trio_stomp.spark._units import clock, lasting, nice_step, short, time_step

Point = tuple[datetime, float]

WIDE, HALF = 1080, 530
LEFT, RIGHT, TOP, BOTTOM = 56, 18, 10, 24
MOST_POINTS = 360
HEAT_STEPS = 8


@frozen
class Series:
    """One line, or one part of a stack."""

    name: str
    points: Sequence[Point]
    colour: int = 1


@frozen
class Bar:
    """A time span on a lane. ``kind`` is its class in the style: bad, warn or note."""

    begin: datetime
    end: datetime
    text: str
    kind: str


@frozen
class Frame:
    """The properties shared by all plots over one time.

    Args:
      starts: The starts of a broker.
      holes: The times without statistics.
      longest: The longest time without a value that a line crosses.
    """

    begin: datetime
    end: datetime
    starts: Sequence[datetime] = ()
    holes: Sequence[tuple[datetime, datetime]] = ()
    longest: timedelta = timedelta(minutes=5)
    width: int = HALF
    height: int = 190
    left: int = LEFT

    @property
    def bottom(self) -> float:
        """The vertical position of the time axis."""
        return self.height - BOTTOM

    def x(self, moment: datetime) -> float:
        """Return the horizontal position of a moment."""
        part = (moment - self.begin) / (self.end - self.begin)
        return self.left + (self.width - self.left - RIGHT) * min(1.0, max(0.0, part))

    def clock(self, moment: datetime) -> str:
        """Return a time as tooltips show it."""
        span = self.end - self.begin
        return clock(moment, span > timedelta(days=1), span < timedelta(hours=2))

    def svg(self, label: str, parts: Iterable[str]) -> str:
        """Return the whole plot."""
        inner = "".join([*self._behind(), *parts, *self._times()])
        is_wide = self.width > HALF
        svg = (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img"'
            f'{" class=wide" * is_wide} aria-label="{escape(label)}">{inner}</svg>'
        )
        # On a narrow screen it is scrolled, also by keys: its words would be too small.
        return f'<div class="scroll" tabindex="0">{svg}</div>' if is_wide else svg

    def _behind(self) -> Iterable[str]:
        for begin, end in self.holes:
            title = f"no statistics for {lasting((end - begin).total_seconds())}"
            yield _box("hole", (self.x(begin), self.x(end)), (TOP, self.bottom), title, 1.5)
        for start in self.starts:
            yield (
                f'<path class="start" d="M{self.x(start):.1f} {TOP}V{self.bottom}">'
                f"<title>started {self.clock(start)}</title></path>"
            )

    def _times(self) -> Iterable[str]:
        span = self.end - self.begin
        step = time_step(span, 9 if self.width > HALF else 5)
        midnight = self.begin.replace(hour=0, minute=0, second=0, microsecond=0)
        moment = midnight + step * -(-(self.begin - midnight) // step)
        while moment <= self.end:
            fine = step < timedelta(minutes=1)
            text = clock(moment, False, fine) if span <= timedelta(days=2) else f"{moment:%d %b}"
            # On a narrow screen the letters are larger.
            x = min(self.x(moment), self.width - 4.7 * len(text))
            yield _tick(x, self.height - 7, text, "middle")
            moment += step


@frozen
class Scale:
    """The axis of values: straight from 0, or by powers of ten."""

    frame: Frame
    top: float
    low: float = field(default=0.0)
    show: Callable[[float], str] = short

    @classmethod
    def of(
        cls, frame: Frame, most: float, show: Callable[[float], str] = short, least: float = 0.0
    ) -> "Scale":
        """Return a scale from 0 up to ``most``, or by powers of ten if ``least`` is not 0."""
        if least:
            low = 10.0 ** floor(log10(least))
            return cls(frame, max(most, low * 10), low, show)
        step = cls._step(most or 1.0, show)
        return cls(frame, step * max(1, -(-(most or 1.0) // step)), 0.0, show)

    @staticmethod
    def _step(most: float, show: Callable[[float], str]) -> float:
        # Steps of bytes are powers of two.
        unit = 1024.0 ** floor(log(max(most, 1.0), 1024)) if show is rounded_size else 1.0
        return nice_step(most / unit, 4) * unit

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        if self.low:
            part = log10(max(value, self.low) / self.low) / log10(self.top / self.low)
        else:
            part = value / self.top
        return self.frame.bottom - (self.frame.bottom - TOP) * min(1.0, part)

    def grid(self) -> Iterable[str]:
        """Yield the grid lines with their labels."""
        if self.low:
            ticks = [self.low]
            while ticks[-1] * 10 <= self.top:
                ticks.append(ticks[-1] * 10)
        else:
            step = self._step(self.top, self.show)
            ticks = [step * number for number in range(round(self.top / step) + 1)]
        for value in ticks:
            y = self.y(value)
            yield f'<path class="grid" d="M{LEFT} {y:.1f}H{self.frame.width - RIGHT}"/>'
            yield _tick(LEFT - 6, y + 4, self.show(value))


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Return fewer points: the highest of each group, so that peaks do not vanish."""
    few = -(-len(points) // most)
    if few <= 1:
        return list(points)
    return [
        max(points[at : at + few], key=lambda point: point[1]) for at in range(0, len(points), few)
    ]


def pieces(points: Sequence[Point], longest: timedelta) -> list[list[Point]]:
    """Cut a line where values are missing for longer than ``longest``."""
    found: list[list[Point]] = []
    for point in points:
        if not found or point[0] - found[-1][-1][0] > longest:
            found.append([])
        found[-1].append(point)
    return found


def lines(
    frame: Frame,
    series: Sequence[Series],
    show: Callable[[float], str] = short,
    *,
    label: str = "",
    powers: bool = False,
    limit: float | None = None,
) -> str:
    """Return a plot of lines.

    Args:
      frame: The common properties of the plots.
      series: The lines.
      show: Formats a value.
      label: A description for screen readers.
      powers: Whether the axis goes by powers of ten.
      limit: A value to be marked.
    """
    values = [value for each in series for _, value in each.points]
    low = min((value for value in values if value > 0), default=0.0) if powers else 0.0
    most = max([*values, limit or 0.0], default=0.0)
    scale = Scale.of(frame, most, show, low)
    parts = list(scale.grid())
    if limit is not None:
        y = scale.y(limit)
        parts.append(f'<path class="limit" d="M{LEFT} {y:.1f}H{frame.width - RIGHT}"/>')
    for each in series:
        # 0 has no logarithm.
        points = [point for point in each.points if point[1] > 0 or not powers]
        for piece in pieces(points, frame.longest):
            path = "L".join(
                f"{frame.x(at):.1f} {scale.y(value):.1f}" for at, value in thinned(piece)
            )
            parts.append(f'<path class="line s{each.colour}" d="M{path}h.1"/>')
    parts += _described(frame, series, show)
    return frame.svg(label, parts)


def _described(
    frame: Frame, series: Sequence[Series], show: Callable[[float], str]
) -> Iterable[str]:
    """Yield invisible columns that show the lines' values on hover."""
    columns = 96
    step = (frame.end - frame.begin) / columns
    peaks: list[dict[str, tuple[datetime, float]]] = [{} for _ in range(columns)]
    for each in series:
        for at, value in each.points:
            index = min(columns - 1, max(0, int((at - frame.begin) / step)))
            if each.name not in peaks[index] or peaks[index][each.name][1] < value:
                peaks[index][each.name] = at, value
    for index, column in enumerate(peaks):
        if column:
            begin = frame.begin + step * index
            values = (f"{name}: {show(value)}" for name, (_, value) in column.items())
            text = "\n".join([frame.clock(begin), *values])
            span = frame.x(begin), frame.x(begin + step)
            yield _box("told", span, (TOP, frame.bottom), text)


def stack(frame: Frame, series: Sequence[Series], width: timedelta, label: str = "") -> str:
    """Return a plot of bars, one upon the other, each as wide as ``width``."""
    totals: dict[datetime, float] = {}
    for each in series:
        for at, value in each.points:
            totals[at] = totals.get(at, 0.0) + value
    scale = Scale.of(frame, max(totals.values(), default=0.0))
    parts, below = list(scale.grid()), dict.fromkeys(totals, 0.0)
    for each in series:
        for at, value in each.points:
            top, bottom = scale.y(below[at] + value), scale.y(below[at])
            below[at] += value
            span = frame.x(at) + 0.5, frame.x(at + width) - 0.5
            title = f"{frame.clock(at)} {each.name}: {value:,.0f}"
            high = top, max(top + 1, bottom)
            parts.append(_box(f"bar f{each.colour}", span, high, title, 2.0))
    return frame.svg(label, parts)


def heat(
    frame: Frame,
    cells: Iterable[tuple[datetime, int, float]],
    names: Sequence[str],
    width: timedelta,
    label: str = "",
) -> str:
    """Return a map of shares: time to the right, ``names`` upwards, darker where there is more.

    Args:
      frame: The common properties of the plots.
      cells: For each cell: its beginning, the index of its name, and a share from 0 to 1.
      names: The names of the rows.
      width: The time that a cell covers.
      label: A description for screen readers.
    """
    high = (frame.bottom - TOP) / len(names)
    parts = []
    for at, index, part in cells:
        step = min(HEAT_STEPS, 1 + int(part * 2 * HEAT_STEPS))
        span = frame.x(at), frame.x(at + width) + 0.3
        top = frame.bottom - high * (index + 1)
        title = f"{frame.clock(at)}, {names[index]}: {100 * part:.2g} %"
        parts.append(_box(f"h{step}", span, (top, top + high + 0.3), title))
    for index, name in enumerate(names):
        if index % 2 == 1:
            y = frame.bottom - high * (index + 1) + 4
            parts.append(_tick(frame.left - 6, y, name))
    return frame.svg(label, parts)


def lanes(frame: Frame, rows: Sequence[tuple[str, Sequence[Bar]]], label: str = "") -> str:
    """Return bars of time, with a lane for each row."""
    high = (frame.bottom - TOP) / max(1, len(rows))
    parts = []
    for number, (name, bars) in enumerate(rows):
        top = TOP + high * number
        parts.append(
            f'<path class="grid" d="M{frame.left} {top + high:.1f}H{frame.width - RIGHT}"/>'
            f'<text class="lane" x="4" y="{top + high / 2 + 4:.1f}">{escape(name)}</text>'
        )
        for bar in bars:
            span = frame.x(bar.begin), frame.x(bar.end)
            parts.append(_box(bar.kind, span, (top + 5, top + high - 5), bar.text, 4.0))
    return frame.svg(label, parts)


def _box(
    kind: str, x: tuple[float, float], y: tuple[float, float], title: str, least: float = 0.0
) -> str:
    """Return a rectangle of a class of the style, from left to right and from top to bottom."""
    width, height = max(least, x[1] - x[0]), y[1] - y[0]
    return (
        f'<rect class="{kind}" x="{x[0]:.1f}" y="{y[0]:.1f}" width="{width:.1f}"'
        f' height="{height:.1f}"><title>{escape(title)}</title></rect>'
    )


def _tick(x: float, y: float, text: str, anchor: str = "end") -> str:
    """Return a label of an axis."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="tick" {place}>{escape(text)}</text>'
