"""The oldest Airflow version that this package supports, with one clear error for older ones."""

from __future__ import annotations

import re
from importlib import metadata

TASK_SDK = (1, 3)
"""Airflow 3.3 comes with task SDK 1.3; a worker may have the task SDK alone."""


def require_airflow() -> None:
    """Refuse an Airflow without asset state, which keeps the offset, and without fields of a connection form.

    Raises:
        RuntimeError: The installed Airflow is older than 3.3.
    """
    try:
        installed = metadata.version("apache-airflow-task-sdk")
    except metadata.PackageNotFoundError:
        installed = "none"
    version = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if version >= TASK_SDK:
        return
    raise RuntimeError(
        f"airflow-provider-mysql-cdc needs Apache Airflow 3.3 or later; the installed task SDK is {installed}"
        f" (Airflow 3.3 has {TASK_SDK[0]}.{TASK_SDK[1]}). Upgrade Airflow or remove this provider: the asset state"
        " that keeps the offset came with 3.3"
    )
