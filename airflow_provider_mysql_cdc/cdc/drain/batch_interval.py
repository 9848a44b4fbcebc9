"""How far apart the batches of a run begin.

What a batch costs besides its records is the same for one record and for thousands. Few changes are worth that, since
somebody waits for them, but no more of it than the lag needs: where a batch takes little, the next one can wait longer.
Many changes come cheaper in fewer batches, and the lag stays below a second (ADR 0027).
"""

from __future__ import annotations

MEDIAN_LAG_S = 0.25
"""Half of the changes are to be visible within these seconds, and almost all within twice as many."""
MOST_STRETCHED = 1.25
"""Share of ``poll.interval.ms`` that batches begin apart at most where there are few changes."""
BUSY_RECORDS_A_SECOND = 1_000.0
"""Records a second from which on batches begin further apart."""
BUSY_INTERVAL_S = 0.7
"""Seconds between the starts of two batches then, unless twice ``poll.interval.ms`` is less, or it is itself more."""


class BatchInterval:
    """Say when the next batch may begin.

    Args:
        poll_s: ``poll.interval.ms`` in seconds.
    """

    def __init__(self, poll_s: float) -> None:
        self._poll_s, self._busy_s = poll_s, max(poll_s, min(2 * poll_s, BUSY_INTERVAL_S))
        self._begun_before: float | None = None

    def earliest(self, begun: float, records: int, took: float) -> float:
        """Return when the batch after one that is complete may begin, by the same clock.

        The rate is that since the start of the batch before, so a burst after a quiet time delays nothing.

        Args:
            begun: When the batch began, in seconds.
            records: Records that it has written.
            took: Seconds that it took.
        """
        before, self._begun_before = self._begun_before, begun
        is_busy = before is not None and records >= BUSY_RECORDS_A_SECOND * (begun - before)
        if is_busy:
            return begun + self._busy_s
        # Half of the interval and the batch itself are the median lag.
        return begun + max(self._poll_s, min(2 * (MEDIAN_LAG_S - took), MOST_STRETCHED * self._poll_s))
