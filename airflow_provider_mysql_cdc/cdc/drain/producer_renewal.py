"""A new Kafka client for each thousand tables that a writer meets, and where another wait suits its records.

librdkafka (2.16) finds a topic by its name by looking at one after the other, for each record and for each answer of a
broker, and looks at all partitions it knows whenever one has something to send. With 5,000 topics a record takes 75
microseconds in place of 4, and each further topic makes all of them dearer.

So behind a commit, when nothing is open, a writer that has met a thousand more tables begins anew as one that was
started again does (``commit.takeover.join_plan``): it finds its plan in force, takes its own id over, and finds it
again.
Then nobody else can commit under the id; and nobody has since its own last marker, when the ledger holds that one. A
table counts once a batch, so that tables that come again and again cost a few new clients, and not one each thousand
rows. Waits are those of ``sink.adaptive_linger``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.errors import FencedError

RENEWAL_TABLES = 1_000
"""Tables after which a new client is cheaper: it takes some 100 ms."""


@dataclass(slots=True)
class ProducerRenewal:
    """Say when a writer's Kafka client is to be replaced, and do it.

    Args:
        table_count: Returns how many tables the writer has met in this batch.
        renew: Replaces the client; nothing is open then, and the marker is the last that the writer committed.
        renewal_due: Returns whether another client would suit the records of the last transaction better.
    """

    table_count: Callable[[], int]
    renew: Callable[[Marker], None]
    renewal_due: Callable[[], bool] = lambda: False
    _renewed_at: int = 0

    def __post_init__(self) -> None:
        self._renewed_at = self.table_count()

    def due(self) -> bool:
        """Return whether a new client is cheaper: this one knows many topics, or waits too long or too shortly."""
        return self.table_count() - self._renewed_at >= RENEWAL_TABLES or self.renewal_due()

    def perform(self, committed_marker: Marker) -> None:
        """Replace the client.

        Args:
            committed_marker: The marker that the writer has just committed.

        Raises:
            FencedError: Another plan or attempt is in force, or another copy of the writer is at work.
            SinkError: Kafka refuses.
        """
        self._renewed_at = self.table_count()
        self.renew(committed_marker)


def require_last_marker(stored_marker: Marker | None, committed_marker: Marker) -> None:
    """Check that nobody has committed under a writer's id since its last marker.

    Spark may run a second copy of a task. It belongs to the same attempt, so the plan does not tell the two apart.

    Args:
        stored_marker: The writer's marker in the ledger, read after the id was taken over.
        committed_marker: The marker that the writer committed.

    Raises:
        FencedError: Somebody has.
    """
    if stored_marker is None or stored_marker.to_json() != committed_marker.to_json():
        raise FencedError(
            "another copy of this writer is at work",
            where=f"epoch {committed_marker.epoch}, writer {committed_marker.writer}, behind "
            f"{committed_marker.reached.offset}",
            why="it has committed since; "
            + ("no marker" if stored_marker is None else f"it reached {stored_marker.reached.offset}"),
            remedy="nothing: the other one goes on, or the next attempt does, from what is committed",
            retriable=True,
        )
