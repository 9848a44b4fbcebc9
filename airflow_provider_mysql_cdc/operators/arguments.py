"""Arguments of operators from a form, a template, or the result of another task."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

Properties = Mapping[str, Any] | str

_FLAGS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1", "1.0"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0", "0.0", "none", "null", ""), False),
}
REJECTED_ARGUMENTS = {
    "application_args": "the only argument of the application is the job spec, which this operator writes",
    "conn_id": "use spark_conn_id",
    "durable": "a retry continues from the ledger and does not re-attach to an older driver",
    "reconnect_on_retry": "a retry continues from the ledger and does not re-attach to an older driver",
    "java_class": "the application is a Python file",
}
"""Arguments of ``SparkSubmitOperator`` that have no effect here, and why."""
NAME_LENGTH = 63
"""Longest value of a Kubernetes label, in characters; the name of a Spark application becomes one."""


def reject_arguments(operator_name: str, arguments: Mapping[str, Any], rejected: Mapping[str, str]) -> None:
    """Refuse arguments that would be ignored silently.

    Args:
        operator_name: The operator's name.
        arguments: The operator's keyword arguments.
        rejected: Arguments that have no effect, and why.

    Raises:
        TypeError: One of them is among the arguments.
    """
    if problems := [f"{name} ({why})" for name, why in rejected.items() if name in arguments]:
        raise TypeError(f"{operator_name} does not take {'; '.join(problems)}")


def parse_bool(value: Any, argument: str) -> bool:
    """Return a boolean from a form, a template or a Variable.

    Args:
        value: True, False, a number, or text such as ``true``, ``False``, ``1``, ``no``; None and empty text are False.
        argument: The operator's argument, for the error.

    Raises:
        ConfigError: The value is neither true nor false.
    """
    parsed = _FLAGS.get(str(value).strip().lower())
    if parsed is None:
        raise ConfigError(f"{value!r} is neither true nor false", where=argument, remedy="use true or false")
    return parsed


def parse_text_map(value: Any, argument: str) -> dict[str, str]:
    """Return settings from a mapping or its JSON text; a setting whose value is None is left out.

    Args:
        value: The settings; None and empty text mean no settings.
        argument: The operator's argument, for the error.

    Raises:
        ConfigError: The value is neither.
    """
    try:
        parsed = json.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except (ValueError, RecursionError):
        parsed = value
    if isinstance(parsed, str) and not parsed.strip():
        return {}
    if not isinstance(parsed, Mapping):
        raise ConfigError(
            f"{argument} is not a mapping",
            where=argument,
            why=f"it is a {type(parsed).__name__}",
            remedy='use a mapping, or its JSON text: {"name": "value", ...}',
        )
    return {str(name): _setting_text(setting) for name, setting in parsed.items() if setting is not None}


def parse_properties(layer: Properties) -> Mapping[str, Any]:
    """Return properties from a mapping or its JSON text.

    Raises:
        ConfigError: The text is not a JSON object.
    """
    try:
        data = json.loads(layer) if isinstance(layer, str) and layer.strip() else layer or {}
    except (ValueError, RecursionError) as error:
        data = error
    if not isinstance(data, Mapping):
        raise ConfigError(
            "the task's properties are not a JSON object",
            where="properties",
            why=str(data) if isinstance(data, Exception) else f"it is a {type(data).__name__}",
            remedy='write them as {"table.include.list": "shop.orders", ...}',
        )
    return data


def application_name(mode: str, context: Any) -> str:
    """Return a unique name for the Spark application of one try of a task.

    It consists of lower-case letters, digits and hyphens, which YARN, Kubernetes and event logs all accept.

    Args:
        mode: ``drain``, ``snapshot`` or ``verify``.
        context: Airflow's context.
    """
    ti = context["ti"]
    index = getattr(ti, "map_index", -1)
    parts = [ti.dag_id, ti.task_id, *([index] if index >= 0 else []), ti.run_id]
    tail = f"-try{getattr(ti, 'try_number', 1)}"
    full_name = "-".join(["mysql-cdc", mode, *map(str, parts)])
    name = re.sub(r"[^a-z0-9]+", "-", full_name.lower()).strip("-")
    # Without the digest, replaced characters or a cut-off part could make two names equal.
    digest = hashlib.sha256("\0".join(map(str, [mode, *parts])).encode()).hexdigest()[:8]
    return f"{name[: NAME_LENGTH - len(tail) - len(digest) - 1].rstrip('-')}-{digest}{tail}"


def _setting_text(setting: Any) -> str:
    return str(setting).lower() if isinstance(setting, bool) else str(setting)
