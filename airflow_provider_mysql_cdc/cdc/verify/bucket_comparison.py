"""Compare the entries of one bucket, in a task of the shuffle: rows and events, or checksums of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.verify.carried_forms import CarriedRowComparison
from airflow_provider_mysql_cdc.cdc.verify.checksum_entries import MARK
from airflow_provider_mysql_cdc.cdc.verify.checksum_fold import ChecksumFold, ChecksumResult
from airflow_provider_mysql_cdc.cdc.verify.entries import read_entries
from airflow_provider_mysql_cdc.cdc.verify.folding import BucketFold, BucketResult
from airflow_provider_mysql_cdc.cdc.verify.key_history import HistoryRules


@dataclass(frozen=True, slots=True)
class ComparedBucket:
    """Hold what was found in the entries of one bucket.

    Args:
        rows: What a comparison of rows has found.
        checksums: What checksums say.
    """

    rows: BucketResult
    checksums: ChecksumResult


@dataclass(frozen=True, slots=True)
class ReduceBucket:
    """Compare the entries of one bucket.

    Args:
        max_found: Most differences of each table and kind.
        rules: What holds for the histories of keys, by the table's number.
        compare: Compares a row with its last event.
        moving: Numbers of tables whose rows may have events in several partitions.
        whole: Numbers of tables whose events are compared with the transaction topic.
    """

    max_found: int
    rules: Mapping[int, HistoryRules]
    compare: CarriedRowComparison
    moving: frozenset[int]
    whole: frozenset[int]

    def __call__(self, blocks: Iterable[bytes]) -> ComparedBucket:
        """Compare.

        Args:
            blocks: Blocks of entries of the bucket, in any order.
        """
        rows, checksums = BucketFold(self.compare, self.max_found, self.rules, self.moving, self.whole), ChecksumFold()
        for block in blocks:
            if block.startswith(MARK):
                checksums.add(block)
            else:
                rows.add(read_entries(block))
        return ComparedBucket(rows.result(), checksums.result())
