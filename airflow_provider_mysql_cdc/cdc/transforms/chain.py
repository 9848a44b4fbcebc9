"""A chain of transforms with their predicates, as Kafka Connect's ``TransformationChain`` applies it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import TransformFault
from airflow_provider_mysql_cdc.cdc.transforms.transform import Predicate, Transform


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One transform of a chain.

    Args:
        name: Its name in ``transforms``.
        transform: The transform.
        predicate: Selects the records that it gets; None for all.
        negated: Whether it gets the others.
    """

    name: str
    transform: Transform
    predicate: Predicate | None = None
    negated: bool = False

    def applies(self, record: ChainRecord) -> bool:
        """Return whether it gets a record."""
        return self.predicate is None or self.predicate.test(record) != self.negated


class StepFault(Exception):
    """A transform of a chain cannot take a record.

    Args:
        step: The transform's name.
        fault: Why.
    """

    def __init__(self, step: str, fault: TransformFault) -> None:
        super().__init__(str(fault))
        self.step, self.why, self.hint = step, str(fault), fault.hint


@dataclass(frozen=True, slots=True)
class TransformChain:
    """Apply transforms in their order.

    Args:
        steps: The transforms.
    """

    steps: Sequence[ChainStep]

    def apply(self, record: ChainRecord) -> ChainRecord | None:
        """Return what is produced in place of a record; None where a transform drops it.

        Args:
            record: The record.

        Raises:
            StepFault: A transform cannot take it.
        """
        current: ChainRecord | None = record
        for step in self.steps:
            assert current is not None
            if not step.applies(current):
                continue
            try:
                current = step.transform.apply(current)
            except TransformFault as fault:
                raise StepFault(step.name, fault) from fault
            if current is None:
                return None
        return current
