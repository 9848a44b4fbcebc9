"""A template counts as the run's where code of the DAG may read the run for it."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, pass_context
from kit.cases import for_each


@pass_context
def from_form(context: Any, *_: Any) -> str:
    """Return what the form holds."""
    return str(context["params"]["p"])


@for_each(
    ("text", "is_run_value"),
    [
        ("{{ from_form() }}", True),
        ("{{ 'x' | from_form }}", True),
        ("{{ 1 if 'x' is from_form }}", True),
        ("{{ self._TemplateReference__context.params.p }}", True),
        ("{{ [var.value.prefix] | map('trim') | join('_') }}", False),
        ("{{ range(3) | list }}", False),
        ("{{ prefix }}", False),
    ],
)
def test_macros_and_filters_of_the_dag_may_read_the_run(text: str, is_run_value: bool) -> None:
    from airflow_provider_mysql_cdc.operators.arguments import RunValues

    env = Environment()
    env.globals |= {"from_form": from_form, "prefix": "shop"}
    env.filters["from_form"] = env.tests["from_form"] = from_form
    values = RunValues(env)
    assert values.contains(text) == is_run_value
    rendered = {"topic.prefix": "elsewhere"}
    assert values.property_names({"topic.prefix": text}, rendered) == (rendered.keys() if is_run_value else set())
