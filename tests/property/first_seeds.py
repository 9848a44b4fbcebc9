"""Where the models' walks begin to look for a broken promise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from kit.tiers import many

from airflow_provider_mysql_cdc.cdc.errors import CdcError

WALKS = int(os.environ.get("MODEL_WALKS", many(500, 2000)))
"""Walks of the three models together: always the same ones, of which scripts/model walks as many as it is told."""


def breaks_a_promise(walk: Callable[[int], Any], shown_by: int, others: Iterable[int]) -> bool:
    """Return whether a walk of a weakened model ends in a violated promise, or can never be brought to its end.

    Args:
        walk: Walks with a seed.
        shown_by: A seed that is known to show it, so that nobody has to look for it each time.
        others: Further seeds, for when the walks have changed.
    """
    for seed in (shown_by, *others):
        try:
            walk(seed)
        except (AssertionError, CdcError):
            return True
    return False
