"""Which arguments of an operator a DAG run may set: sizes, never where the job runs and who gets its secrets."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.arguments import REJECTED_ARGUMENTS

OPENED_BY_AUTHOR = frozenset({"run_properties", "run_arguments"})
"""Arguments by which the author of a DAG lets runs set more; no run sets them."""
RUN_SPARK_ARGUMENTS = frozenset(
    {
        "name",
        "driver_memory",
        "executor_cores",
        "executor_memory",
        "num_executors",
        "total_executor_cores",
        "status_poll_interval",
    }
)
"""Arguments of ``SparkSubmitOperator`` that a run may set."""
AUTHOR_SPARK_ARGUMENTS = frozenset(
    {"master", *inspect.signature(SparkSubmitOperator.__init__).parameters}
    - {"self", "kwargs"}
    - REJECTED_ARGUMENTS.keys()
    - RUN_SPARK_ARGUMENTS
)
"""All others: master, deploy mode, configuration, environment, files, packages, accounts, and what a later one adds."""


def reject_unknown_arguments(opened: Iterable[str]) -> None:
    """Refuse names in ``run_arguments`` that open nothing.

    Args:
        opened: Arguments that the author of the DAG lets runs set.

    Raises:
        TypeError: There is such a name.
    """
    if unknown := sorted(set(opened) - AUTHOR_SPARK_ARGUMENTS):
        raise TypeError(
            f"run_arguments names {', '.join(unknown)}; it opens {', '.join(sorted(AUTHOR_SPARK_ARGUMENTS))}"
        )


def check_run_arguments(names: Iterable[str], opened: Iterable[str]) -> None:
    """Refuse arguments that a run sets and may not set.

    Args:
        names: Arguments of the DAG's author that the run sets.
        opened: Those of them that the author lets runs set.

    Raises:
        ConfigError: There are such arguments; the text names them.
    """
    if refused := sorted(set(names) - (set(opened) - OPENED_BY_AUTHOR)):
        raise ConfigError(
            "the run sets arguments of the operator that a run may not set",
            where=", ".join(refused),
            why="they decide where the job runs, which code it loads, who gets its secrets and where files are written",
            remedy="set them as text in the DAG file, or in the Spark connection; the DAG's author can let runs set "
            "single ones with the operator's argument run_arguments=[...]",
        )


def is_set(value: Any) -> bool:
    """Return whether a rendered argument has a value; a form field that is left blank renders as one of these texts.

    Args:
        value: The argument, rendered.
    """
    return bool(value) and value not in ("None", "{}", "[]")
