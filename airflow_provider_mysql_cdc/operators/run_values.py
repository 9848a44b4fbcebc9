"""Tell the values that a DAG run brings from those of the DAG's author.

The author's are written in the DAG file. A template reads what the run brings (its form, its dates, results of other
tasks), unless it reads nothing but Airflow Variables and connections, which belong to the deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from airflow.sdk.definitions.mappedoperator import MappedOperator
from jinja2 import Environment, TemplateSyntaxError, meta, nodes
from jinja2.defaults import DEFAULT_NAMESPACE

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.arguments import parse_properties

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
