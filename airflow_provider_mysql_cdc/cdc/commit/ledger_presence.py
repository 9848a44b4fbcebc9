"""Read a ledger that is known to exist: a single read that does not find it is repeated.

A broker that had just restarted after a crash answered as if the topic were empty, and a moment later returned
everything (scripts/soak, Kafka killed under a driver). Believing that answer would stop a stream until a person
decides, on wrong information.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState

log = logging.getLogger(__name__)

MISSING_TIMEOUT_S = 5.0
"""Seconds for which a ledger has to be missing, or without a plan, before it counts as gone."""
_RETRY_INTERVAL_S = 0.25


def read_existing(read: Callable[[], LedgerState | None], *, expect_plan: bool) -> LedgerState | None:
    """Return the ledger; read it again for a while when it is known to hold a plan and shows none.

    Args:
        read: Reads the ledger once; None when its topic does not exist.
        expect_plan: Whether a plan was committed to it before.
    """
    deadline, warned = time.monotonic() + MISSING_TIMEOUT_S, False
    while True:
        state = read()
        if not expect_plan or (state is not None and state.plan is not None) or time.monotonic() >= deadline:
            return state
        if not warned:
            warned = True
            log.warning(
                "Kafka shows no plan in the ledger, although it held one; reading it again for %.0f s",
                MISSING_TIMEOUT_S,
            )
        time.sleep(_RETRY_INTERVAL_S)
