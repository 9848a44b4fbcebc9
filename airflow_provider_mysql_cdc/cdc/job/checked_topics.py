"""The topics of a run as it has last found them, so that a batch describes them only where something has changed.

Describing a topic costs some 50 us of CPU, and 100 bytes that confluent_kafka 2.16 never frees; a run with hundreds of
tables has several batches a second, most of which write to few of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState

RECHECK_S = 60.0
"""Seconds after which topics are described again to which no batch writes; those with records are at each commit."""


@dataclass(frozen=True, slots=True)
class CheckedTopics:
    """Hold the topics that a run needs, compared with the ledger before one of its batches.

    Args:
        state: The tables that need them.
        recorded: The topics in the ledger.
        checked_at: When they were described, in monotonic seconds.
    """

    state: SchemaState
    recorded: Mapping[str, RecordedTopic]
    checked_at: float

    def suffice(self, plan: BatchPlan, state: SchemaState, recorded: Mapping[str, RecordedTopic]) -> bool:
        """Return whether another batch can begin without describing them again.

        Args:
            plan: The batch; one that names topics, of several writers, fixes their partitions.
            state: The tables at its start.
            recorded: The topics in the ledger now.
        """
        return (
            not plan.partitions
            and state is self.state
            and recorded == self.recorded
            and time.monotonic() - self.checked_at < RECHECK_S
        )
