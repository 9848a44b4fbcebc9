"""The topics to which a writer writes: compared with the ledger before its records become visible.

So a run need not describe all its topics for each batch. A topic that was deleted, created again or enlarged since the
last batch gets no visible record: the writer ends with the error, and its Kafka transaction with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.topic_records import RecordedTopic
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.topic_guard import require_same_topics


class WrittenTopics:
    """Compare the topics of each commit of a writer.

    Args:
        cfg: The connector's configuration.
        plan: The batch.
        recorded: Topics as the ledger knew them when the writer joined.
        counts: Records by topic that an earlier attempt at the batch has committed.

    Attributes:
        recorded: The same, with the topics that the writer has created since.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        plan: BatchPlan,
        recorded: Mapping[str, RecordedTopic],
        counts: Mapping[str, int],
    ) -> None:
        self._cfg, self._plan = cfg, plan
        self.recorded = dict(recorded)
        self._committed = dict(counts)

    def require_same(self, counts: Mapping[str, int]) -> None:
        """Compare the topics that have got records since the last call.

        Args:
            counts: Records by topic in this batch.

        Raises:
            TopicChangedError: A topic was deleted, created again or given more partitions.
            SinkError: Kafka refuses.
        """
        written = sorted(topic for topic, n in counts.items() if n != self._committed.get(topic, 0))
        recorded = {topic: self.recorded[topic] for topic in written if topic in self.recorded}
        require_same_topics(self._cfg, recorded, self._plan, has_commits=bool(self._committed))
        self._committed = dict(counts)
