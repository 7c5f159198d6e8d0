"""A curve as SVG: the same figures give the same bytes. A mark is the median of its rounds, a bar their spread."""

import math
from html import escape
from statistics import median

from bench.measure import Curve

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 230, 52, 52  # margins; the names of the series stand on the right

#: told apart also without red and green. Source: Okabe and Ito
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")

#: how many decades make an axis logarithmic
_DECADES = 1.5


class _Axis:
    """From values to pixels, with its ticks: logarithmic over some decades, else from 0 on."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        least, most = min(values), max(values) or 1.0
        self._is_log = least > 0 and math.log10(most / least) >= _DECADES
        self._start, self._end = start, end
        if self._is_log:
            first, last = math.floor(math.log10(least) + 1e-9), math.ceil(math.log10(most) - 1e-9)
            self.ticks = [10.0**power for power in range(first, last + 1)]
        else:
            step = 10.0 ** math.floor(math.log10(most))
            step = next(step * part for part in (0.1, 0.2, 0.5, 1, 2) if most <= 6 * step * part)
            self.ticks = [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]
        self._low, self._high = self._place(self.ticks[0]), self._place(self.ticks[-1])

    def _place(self, value: float) -> float:
        return math.log10(value) if self._is_log else value

    def pixel(self, value: float) -> str:
        share = (self._place(value) - self._low) / (self._high - self._low)
        return f"{self._start + share * (self._end - self._start):.1f}"


def svg(curve: Curve) -> str:
    """The picture of a curve, as text that ends in a newline."""
    places = [place for points in curve.series.values() for place in points]
    values = [value for points in curve.series.values() for found in points.values() for value in found]
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    x, y = _Axis(places, _LEFT, right), _Axis(values, bottom, _TOP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(curve.title)}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        _text(_LEFT, 24, curve.title, ' font-size="15" font-weight="bold"'),
        _text(_LEFT, _TOP - 6, curve.y),
        _text((_LEFT + right) / 2, _HEIGHT - 14, curve.x, ' text-anchor="middle"'),
    ]
    for tick in x.ticks:
        lines.append(_line(x.pixel(tick), _TOP, x.pixel(tick), bottom, "#ddd"))
        lines.append(_text(x.pixel(tick), bottom + 18, _number(tick), ' text-anchor="middle"'))
    for tick in y.ticks:
        lines.append(_line(_LEFT, y.pixel(tick), right, y.pixel(tick), "#ddd"))
        lines.append(_text(_LEFT - 8, float(y.pixel(tick)) + 4, _number(tick), ' text-anchor="end"'))
    for number, (name, points) in enumerate(curve.series.items()):
        color, row = _COLORS[number % len(_COLORS)], _TOP + 8 + 20 * number
        marks = [(x.pixel(place), y.pixel(median(found))) for place, found in sorted(points.items())]
        path = " ".join(f"{across},{up}" for across, up in marks)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        for place, found in sorted(points.items()):
            lines.append(_line(x.pixel(place), y.pixel(min(found)), x.pixel(place), y.pixel(max(found)), color))
        lines += [f'<circle cx="{across}" cy="{up}" r="3.5" fill="{color}"/>' for across, up in marks]
        lines.append(f'<circle cx="{right + 20}" cy="{row - 4}" r="5" fill="{color}"/>')
        lines.append(_text(right + 32, row, name))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _line(left: object, top: object, right: object, bottom: object, color: str) -> str:
    return f'<line x1="{left}" y1="{top}" x2="{right}" y2="{bottom}" stroke="{color}"/>'


def _text(left: object, top: object, text: str, style: str = "") -> str:
    return f'<text x="{left}" y="{top}"{style}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"
