"""A new Kafka client for each thousand tables that a writer meets, and where another wait suits its records.

librdkafka (2.16) finds a topic by its name by looking at one after the other, for each record and for each answer of a
broker, and looks at all partitions it knows whenever one has something to send. With 5,000 topics a record takes 75
microseconds in place of 4, and each further topic makes all of them dearer.

So behind a commit, when nothing is open, a writer that has met a thousand more tables begins anew as one that was
started again does (``commit.takeover.join``): it finds its plan in force, takes its own id over, and finds it again.
Then nobody else can commit under the id; and nobody has since its own last marker, when the ledger holds that one. A
table counts once a batch, so that tables that come again and again cost a few new clients, and not one each thousand
rows. Waits are those of ``sink.adaptive_linger``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.errors import FencedError

TABLES = 1_000
"""Tables after which a new client is cheaper: it takes some 100 ms."""


@dataclass(slots=True)
class ClientTurn:
    """Say when a writer's Kafka client is to be replaced, and do it.

    Args:
        met: Returns how many tables the writer has met in this batch.
        renew: Replaces the client; nothing is open then, and the marker is the last that the writer committed.
        unsuited: Returns whether another client would suit the records of the last transaction better.
    """

    met: Callable[[], int]
    renew: Callable[[Marker], None]
    unsuited: Callable[[], bool] = lambda: False
    _at: int = 0

    def __post_init__(self) -> None:
        self._at = self.met()

    def due(self) -> bool:
        """Return whether a new client is cheaper: this one knows many topics, or waits too long or too shortly."""
        return self.met() - self._at >= TABLES or self.unsuited()

    def take(self, last: Marker) -> None:
        """Replace the client.

        Args:
            last: The marker that the writer has just committed.

        Raises:
            FencedError: Another plan or attempt is in force, or another copy of the writer is at work.
            SinkError: Kafka refuses.
        """
        self._at = self.met()
        self.renew(last)


def require_last(found: Marker | None, last: Marker) -> None:
    """Check that nobody has committed under a writer's id since its last marker.

    Spark may run a second copy of a task. It belongs to the same attempt, so the plan does not tell the two apart.

    Args:
        found: The writer's marker in the ledger, read after the id was taken over.
        last: The marker that the writer committed.

    Raises:
        FencedError: Somebody has.
    """
    if found is None or found.to_json() != last.to_json():
        raise FencedError(
            "another copy of this writer is at work",
            where=f"epoch {last.epoch}, writer {last.writer}, behind {last.reached.offset}",
            why="it has committed since; " + ("no marker" if found is None else f"it reached {found.reached.offset}"),
            remedy="nothing: the other one goes on, or the next attempt does, from what is committed",
            retriable=True,
        )
