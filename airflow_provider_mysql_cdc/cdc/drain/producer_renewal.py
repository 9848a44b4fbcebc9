"""A new Kafka client after each thousand tables that a writer meets, and where another linger time suits its records.

librdkafka (2.16) finds a topic by comparing its name with one topic after the other, for each record and for each
response of a broker, and goes through all partitions it knows whenever one has something to send. With 5,000 topics a
record takes 75 microseconds instead of 4, and each further topic slows all records down.

A writer that has met a thousand more tables therefore replaces its client after a commit, when no transaction is open,
and then proceeds as a restarted writer does (``commit.takeover.join_plan``): it checks that its plan is in force, takes
over its own transactional id, and checks the plan again. From then on no other process can commit under the id; and
none has since the writer's last marker if the ledger still holds that marker. Tables that come again and again count
once for a client, which may live through many batches. Batches too small for a commit before their end never ask; so
the client is replaced before the next one begins (``kept_writer``). Linger times are those of ``sink.adaptive_linger``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import islice

from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.errors import FencedError

RENEWAL_TABLES = 1_000
"""Tables after which a new client is cheaper: it takes some 100 ms."""


@dataclass(slots=True)
class ProducerRenewal:
    """Decide when a writer's Kafka client is replaced, and replace it.

    Args:
        tables: The tables that the writer has met in this batch, in the order in which it did; it adds others.
        renew: Replaces the client; no transaction is open then, and the marker is the last that the writer committed.
        renewal_due: Returns whether another linger time would suit the records of the last transaction better.
        met: The tables that the client has met, also in earlier batches; shared by all batches of the client.
    """

    tables: Collection[str]
    renew: Callable[[Marker], None]
    renewal_due: Callable[[], bool] = lambda: False
    met: set[str] = field(default_factory=set)
    _seen: int = 0

    def __post_init__(self) -> None:
        self._seen = len(self.tables)

    def due(self) -> bool:
        """Return whether to replace the client: it knows many topics, or lingers too long or too briefly."""
        self.met.update(islice(self.tables, self._seen, None))
        self._seen = len(self.tables)
        return knows_many(self.met) or self.renewal_due()

    def perform(self, committed_marker: Marker) -> None:
        """Replace the client.

        Args:
            committed_marker: The marker that the writer has just committed.

        Raises:
            FencedError: Another plan or attempt is in force, or another copy of the writer is running.
            SinkError: Kafka refuses the new client.
        """
        self.met.clear()
        self.renew(committed_marker)


def knows_many(met: Collection[str]) -> bool:
    """Return whether a client has met so many tables that a new one is cheaper.

    Args:
        met: The tables.
    """
    return len(met) >= RENEWAL_TABLES


def require_unchanged_marker(stored_marker: Marker | None, committed_marker: Marker) -> None:
    """Check that no other process has committed under a writer's transactional id since its last marker.

    Spark may run a second copy of a task. It belongs to the same attempt, so the plan does not distinguish the two.

    Args:
        stored_marker: The writer's marker in the ledger, read after the takeover of the id.
        committed_marker: The marker that the writer committed.

    Raises:
        FencedError: Another process has.
    """
    if stored_marker is None or stored_marker.to_json() != committed_marker.to_json():
        raise FencedError(
            "another copy of this writer is running",
            where=f"epoch {committed_marker.epoch}, writer {committed_marker.writer}, after "
            f"{committed_marker.reached.offset}",
            why="it has committed since then: "
            + ("the marker is gone" if stored_marker is None else f"it reached {stored_marker.reached.offset}"),
            remedy="nothing: the other copy or the next attempt continues after what is committed",
            retriable=True,
        )
