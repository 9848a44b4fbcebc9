"""Plots of the result file, as SVG that is the same each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import pygal
from pygal.style import Style

from benchlib.result import PARTS, PEER_SIDE, Figures, WorkloadLine
from benchlib.sides import SIDES

_SVG = "http://www.w3.org/2000/svg"
_COLORS = {"background": "#ffffff", "plot_background": "#ffffff", "value_font_size": 11}
_STYLE = Style(colors=("#2f9e6e", "#3572b0", "#8a8f98", "#c9822b"), **_COLORS)
PlotFunction = Callable[[Sequence[WorkloadLine]], str | None]


def cpu(lines: Sequence[WorkloadLine]) -> str | None:
    """Draw the CPU seconds a million records, without starts, where both sides ran."""
    return _by_side("cpu", "CPU seconds a million records, without start", _compared(lines), lambda f: f.steady_s)


def memory(lines: Sequence[WorkloadLine]) -> str | None:
    """Draw the greatest memory where both sides ran."""
    return _by_side("memory", "Peak memory, MB", _compared(lines), lambda f: f.peak_mb)


def linear(lines: Sequence[WorkloadLine]) -> str | None:
    """Draw the CPU seconds a million records for more and more of them."""
    found = [line for line in lines if line.workload.startswith("linear-")]
    return _by_side("linear", "CPU seconds a million records, without start", found, lambda f: f.steady_s)


def tables(lines: Sequence[WorkloadLine]) -> str | None:
    """Draw the CPU seconds a million records for more and more tables."""
    found = [line for line in lines if line.workload.startswith("tables-1")]
    return _by_side("tables", "CPU seconds a million records that go to many tables", found, lambda f: f.cpu_s)


def parts(lines: Sequence[WorkloadLine]) -> str | None:
    """Draw which processes of this provider use the CPU seconds a million records, starts counted."""
    found = [
        (line, side)
        for line in _compared(lines)
        for side in reversed(SIDES)
        if side in line.sides and side != PEER_SIDE
    ]
    if not found:
        return None
    title = "CPU seconds a million records, by process, start counted"
    chart = _bars(pygal.HorizontalStackedBar, "parts", title, len(found), print_values=False)
    below = found[::-1]
    chart.x_labels = [f"{line.workload}, {side}" for line, side in below]
    for part in PARTS:
        chart.add(part, [round(line.sides[side].parts_s.get(part, 0.0), 2) for line, side in below])
    return _plain(chart.render())


def _compared(lines: Sequence[WorkloadLine]) -> list[WorkloadLine]:
    steady = [line for line in lines if not any(found.lag_s for found in line.sides.values())]
    return [line for line in steady if len(line.sides) > 1 and PEER_SIDE in line.sides]


def _by_side(
    name: str, title: str, lines: Sequence[WorkloadLine], value: Callable[[Figures], float | None]
) -> str | None:
    """Return bars of all sides side by side; None where there is nothing to draw."""
    if not lines:
        return None
    chart = _bars(pygal.HorizontalBar, name, title, sum(len(line.sides) for line in lines))
    # Bars lie from the bottom up.
    below = list(reversed(lines))
    chart.x_labels = [line.workload for line in below]
    for side in reversed(SIDES):
        values = [value(line.sides[side]) if side in line.sides else None for line in below]
        if any(each is not None for each in values):
            chart.add(SIDES[side].title, [None if each is None else round(each, 2) for each in values])
    return _plain(chart.render())


def _bars(kind: Any, name: str, title: str, bars: int, **more: Any) -> Any:
    """Return an empty chart with room for some bars."""
    settings = {
        "js": [],
        "style": _STYLE,
        "title": title,
        "width": 900,
        "height": 130 + 22 * bars,
        "explicit_size": True,
        "print_values": True,
        "print_values_position": "top",
        "legend_at_bottom": True,
        "formatter": lambda n: "" if n is None else f"{n:,.0f}" if n >= 100 else f"{n:,.1f}",
    }
    chart = kind(**{**settings, **more})
    chart.uuid = f"bench-{name}"
    return chart


def _plain(drawn: bytes) -> str:
    """Return an SVG without scripts, and without the comment that holds the day."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(drawn)  # its parser leaves comments out
    for parent in root.iter():
        for script in parent.findall(f"{{{_SVG}}}script"):
            parent.remove(script)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


PLOTS: Mapping[str, PlotFunction] = {"cpu": cpu, "memory": memory, "linear": linear, "tables": tables, "parts": parts}
