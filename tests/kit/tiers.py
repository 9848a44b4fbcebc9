"""The two tiers of the suite: what each landing runs, and what ``scripts/test --all`` runs beside it.

CONTRIBUTING.md says when to run which.
"""

from __future__ import annotations

import collections
import datetime
import os
import re
from collections.abc import Sequence
from typing import TypeVar

import pytest

ALL = os.environ.get("MYSQL_CDC_ALL") == "1"
"""Whether this run is ``scripts/test --all``."""

# Workers of a run that begins before midnight collect the same tests.
DAY = int(os.environ.setdefault("MYSQL_CDC_SUITE_DAY", str(datetime.datetime.now(datetime.UTC).toordinal())))

_T = TypeVar("_T")


def many(fast: _T, everything: _T) -> _T:
    """Return what a test tries in this run: seeds, examples, walks of a model, sizes.

    Args:
        fast: For each landing; seeds that are known to find a fault belong here.
        everything: For ``scripts/test --all``.
    """
    return everything if ALL else fast


def left_out(items: Sequence[pytest.Item], day: int) -> set[pytest.Item]:
    """Return the tests that the fast tier leaves to ``scripts/test --all``.

    Those marked ``exhaustive`` are, but the cases whose ids have a match of ``exhaustive(but=...)``, a regular
    expression; each second case of a function marked ``halves``: one half on even days, the other half on odd ones;
    and what is marked ``days("even")`` or ``days("odd")`` on the other days.

    Args:
        items: All tests, in their order.
        day: A day's number; -1 leaves out what no day takes.
    """
    out = {item for item in items if _is_exhaustive(item) or _has_another_day(item, day)}
    points: dict[str, list[pytest.Item]] = collections.defaultdict(list)
    for item in items:
        if item not in out and item.get_closest_marker("halves"):
            points[item.nodeid.partition("[")[0]].append(item)
    for cases in points.values():
        if len(cases) > 1 and day >= 0:
            out.update(cases[day % 2 :: 2])
    return out


def _has_another_day(item: pytest.Item, day: int) -> bool:
    marker = item.get_closest_marker("days")
    return marker is not None and day >= 0 and ("even", "odd").index(marker.args[0]) != day % 2


def _is_exhaustive(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("exhaustive")
    if marker is None:
        return False
    case = item.nodeid.partition("[")[2].removesuffix("]")
    return "but" not in marker.kwargs or re.search(marker.kwargs["but"], case) is None
