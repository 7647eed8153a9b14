"""Curves as SVG, side by side: dark on white, regardless of the page's colours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

# Distinguishable without colour: each curve has separate dashes and markers.
STYLES = (
    ("#0b5394", "", "circle"),
    ("#b45f06", "7 3", "square"),
    ("#38761d", "2 3", "diamond"),
    ("#741b47", "9 3 2 3", "circle"),
    ("#444444", "4 4", "square"),
)
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 330, 280, 52, 40, 14, 44
LEGEND, ROW, COLUMN = 30, 18, 190
"""Of the names below: where they end, and how far they are apart."""


@dataclass(frozen=True)
class Panel:
    """One diagram."""

    title: str
    x: str
    curves: Mapping[str, Sequence[tuple[float, float]]]
    target: float | None
    """A line to stay below."""


def draw(panels: Sequence[Panel]) -> str:
    """Return an SVG document."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    width = WIDTH * len(panels)
    columns = max(1, (width - LEFT) // COLUMN)
    height = HEIGHT + LEGEND + ROW * ((len(names) - 1) // columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" '
        'fill="#1a1a1a">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * WIDTH} 0)">')
        parts += _panel(panel, names)
        parts.append("</g>")
    for number, name in enumerate(names):
        x, y = LEFT + number % columns * COLUMN, HEIGHT + 14 + number // columns * ROW
        parts.append(_line([(x, y), (x + 34, y)], number))
        parts.append(_mark(x + 17, y, number))
        parts.append(f'<text x="{x + 42}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, names: Sequence[str]) -> list[str]:
    points = [point for curve in panel.curves.values() for point in curve]
    tops = [y for _, y in points] + ([panel.target] if panel.target else [])
    x_step, x_end = _scale(max((x for x, _ in points), default=1))
    y_step, y_end = _scale(max(tops, default=1))

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / x_end
        return across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / y_end

    parts = [
        f'<text x="{LEFT}" y="22" font-size="11" font-weight="bold">{escape(panel.title)}</text>'
    ]
    for i in range(round(y_end / y_step) + 1):
        y = at(0, i * y_step)[1]
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{i * y_step:g}</text>'
        )
    for i in range(round(x_end / x_step) + 1):
        x = at(i * x_step, 0)[0]
        label = f"{i * x_step:.3g}"
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{label}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(panel.x)}</text>'
    )
    if panel.target:
        y = at(0, panel.target)[1]
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#cc0000"/>'
            f'<text x="{LEFT + 4}" y="{y - 4:.1f}" fill="#990000">target'
            "</text>"
        )
    for name, curve in panel.curves.items():
        number = names.index(name)
        spots = [at(x, y) for x, y in sorted(curve)]
        parts.append(_line(spots, number))
        parts += [_mark(x, y, number) for x, y in spots]
    return parts


def _line(points: Sequence[tuple[float, float]], number: int) -> str:
    colour, dashes, _ = STYLES[number % len(STYLES)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dashes}"/>'
    )


def _mark(x: float, y: float, number: int) -> str:
    colour, _, shape = STYLES[number % len(STYLES)]
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"{turn}/>'


def _scale(top: float) -> tuple[float, float]:
    """Return (step, end) of an axis from 0: at most 6 round steps."""
    step = 10.0**-6
    while True:
        for factor in (1, 2, 5):
            if top <= 6 * step * factor:
                steps = max(1, -(-top // (step * factor)))
                return step * factor, step * factor * steps
        step *= 10
