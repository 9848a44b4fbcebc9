"""Arguments of operators: from a form, a template or another task, and which of them a DAG run may set or has
brought.

Tell the values that a DAG run brings from those of the DAG's author.

The author's are written in the DAG file. A template reads what the run brings (its form, its dates, results of other
tasks), unless it reads nothing but Airflow Variables and connections, which belong to the deployment.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.definitions.mappedoperator import MappedOperator
from jinja2 import Environment, TemplateSyntaxError, meta, nodes
from jinja2.defaults import DEFAULT_NAMESPACE

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


DEPLOYMENT_VARIABLES = frozenset({"var", "conn"})
"""Names in Airflow's template context that no run can influence."""


@dataclass(frozen=True, slots=True)
class RunValues:
    """Decide about arguments of an operator before they are rendered.

    Args:
        jinja_env: Jinja's environment of the operator.
        file_endings: Ends of texts that name a file with a template.
        resolved_ids: Ids of arguments that are results of other tasks.
    """

    jinja_env: Environment
    file_endings: Sequence[str] = ()
    resolved_ids: frozenset[int] = field(default=frozenset())

    def contains(self, value: Any) -> bool:
        """Return whether a value, or a part of it, is what the run brings.

        Args:
            value: The value, not yet rendered.
        """
        if id(value) in self.resolved_ids:
            return True
        if isinstance(value, str):
            return value.endswith(tuple(self.file_endings)) or self._reads_run(value)
        if isinstance(value, Mapping):
            return any(map(self.contains, value.values()))
        if isinstance(value, (list, tuple, set, frozenset)):
            return any(map(self.contains, value))
        # What is left is constant, or it is an XComArg, a callable, or an object with templates of its own.
        return not (value is None or isinstance(value, (bool, int, float, PurePath)))

    def property_names(self, properties: Any, rendered: Any) -> frozenset[str]:
        """Return the names of the properties whose values the run brings, without those that are empty.

        Args:
            properties: The argument ``properties``, not yet rendered: a mapping, its JSON text, or a list of these.
            rendered: The same, rendered.
        """
        names: set[str] = set()
        whole = id(properties) in self.resolved_ids or not isinstance(properties, (list, tuple))
        layers = [(properties, rendered)] if whole else zip(properties, rendered, strict=True)
        for layer, rendered_layer in layers:
            names |= self._layer_names(layer, rendered_layer)
        return frozenset(names)

    def _layer_names(self, layer: Any, rendered: Any) -> set[str]:
        if not self.contains(layer):
            return set()
        if isinstance(rendered, (list, tuple)):
            return {name for part in rendered for name in _names_with_value(part)}
        names = _names_with_value(rendered)
        if isinstance(layer, Mapping) and id(layer) not in self.resolved_ids:
            return {name for name in names if self.contains(layer.get(name))}
        return names

    def _reads_run(self, text: str) -> bool:
        try:
            template = self.jinja_env.parse(text)
        except TemplateSyntaxError:
            return True
        if any(True for _ in meta.find_referenced_templates(template)):
            return True
        return self._calls_own_code(template) or not meta.find_undeclared_variables(template) <= DEPLOYMENT_VARIABLES

    def _calls_own_code(self, template: nodes.Template) -> bool:
        """Return whether a template calls a macro of the DAG or a filter that gets the context, or reads ``self``.

        Jinja does not count these as undeclared variables, and they can read what the run brings.
        """
        macros = self.jinja_env.globals
        names = {node.name for node in template.find_all(nodes.Name)} - DEFAULT_NAMESPACE.keys()
        calls = any(name in macros and not isinstance(macros[name], (str, bool, int, float)) for name in names)
        filters = [self.jinja_env.filters.get(node.name) for node in template.find_all(nodes.Filter)]
        filters += [self.jinja_env.tests.get(node.name) for node in template.find_all(nodes.Test)]
        # Some of Jinja's own take its environment, or the place of the call, and read nothing of the run.
        own = (f for f in filters if not getattr(f, "__module__", "").startswith("jinja2."))
        return calls or "self" in names or any(hasattr(f, "jinja_pass_arg") for f in own)


def _names_with_value(layer: Any) -> set[str]:
    with suppress(ConfigError):  # which the task raises itself
        return {str(name) for name, value in parse_properties(layer).items() if value is not None and value != ""}
    return set()


def expanded_names(task: Any, context: Any) -> frozenset[str]:
    """Return the names of those arguments of a mapped task that are results of other tasks.

    Airflow renders some of them as templates: ``expand_kwargs`` hands on what a task returned, perhaps texts of the
    run's form, as if the DAG's author had written it (``ListOfDictsExpandInput.resolve`` of Airflow 3.3).

    Args:
        task: The task, unmapped.
        context: Airflow's context.
    """
    mapped = context["dag"].task_dict.get(task.task_id)
    if not isinstance(mapped, MappedOperator):
        return frozenset()
    expanded: Any = mapped.expand_input.value
    if isinstance(expanded, Mapping):
        return frozenset(name for name, values in expanded.items() if not isinstance(values, (Mapping, list, tuple)))
    literal = isinstance(expanded, (list, tuple)) and isinstance(expanded[context["ti"].map_index], Mapping)
    return frozenset() if literal else frozenset(task._BaseOperator__init_kwargs) - mapped.partial_kwargs.keys()
