"""Read a ledger that is known to exist: one look that does not find it is not believed.

A broker that has just come back after a crash was seen to answer as if nothing stood in the topic (scripts/soak, Kafka
killed under a driver), and a moment later it showed everything. Taken for the truth, that answer stops a stream until a
person decides, and the decision would be a wrong one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState

log = logging.getLogger(__name__)

MISSING_TIMEOUT_S = 5.0
"""Seconds for which a ledger has to be missing, or without a plan, before it is taken for gone."""
_RETRY_INTERVAL_S = 0.25


def read_existing(read: Callable[[], LedgerState | None], *, expect_plan: bool) -> LedgerState | None:
    """Return what a ledger holds; look again for a while where it is known to hold a plan and shows none.

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
                "Kafka shows no plan in the ledger, which held one; looking again for %.0f s", MISSING_TIMEOUT_S
            )
        time.sleep(_RETRY_INTERVAL_S)
