"""The trigger forms of all DAGs: what Airflow serves of them, and that an empty field means what it says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow_home import run_dag

from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
from airflow_provider_mysql_cdc.operators.dag_forms import verify_arguments, verify_params
from airflow_provider_mysql_cdc.operators.dag_params import adhoc_arguments, adhoc_params, reading_arguments

pytestmark = pytest.mark.usefixtures("metadata_db")
DAGS = Path(__file__).resolve().parents[2] / "airflow_provider_mysql_cdc" / "example_dags"
NAMES = sorted(path.stem for path in DAGS.glob("mysql_cdc_*.py"))
STARS = {
    "mysql_cdc_adhoc_snapshot": {"tables"},
    "mysql_cdc_reset_offset": {"offset", "confirm"},
}
"""Fields without which a run of a DAG means nothing, beside the connections."""


def load(name: str) -> DAG:
    (dag,) = (value for value in runpy.run_path(str(DAGS / f"{name}.py")).values() if isinstance(value, DAG))
    return dag


def form_of(dag: DAG) -> dict[str, Any]:
    """Return the fields as the REST API gives them to the form (``dags/<id>/details``)."""
    from airflow.serialization.serialized_objects import DagSerialization

    params = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag)).params
    return {name: params.get_param(name).dump() for name in params.dump()}


@pytest.mark.parametrize("name", NAMES)
def test_only_fields_that_must_be_filled_have_a_star(name: str) -> None:
    dag = load(name)
    form = form_of(dag)
    starred = {field for field, shown in form.items() if "null" not in shown["schema"]["type"]}
    required = {"mysql_cdc_conn_id"} | ({"spark_conn_id"} & form.keys())
    assert starred == required | STARS.get(name, set())


@pytest.mark.parametrize("name", NAMES)
def test_a_form_is_grouped_and_labelled_for_people(name: str) -> None:
    form = form_of(load(name))
    groups = [shown["schema"].get("section", "") for shown in form.values()]
    assert set(groups) <= {"", "More settings", "Connections"} and groups[0] == ""
    assert len({shown["schema"]["title"] for shown in form.values()}) == len(form)
    for field, shown in form.items():
        schema = shown["schema"]
        assert schema["title"][0].isupper() and schema["title"] != field
        assert "`" not in (shown["description"] or "")
        if None in (values := schema.get("enum") or []):
            assert schema["values_display"]["null"].startswith("(empty: ")
            assert set(schema["values_display"]) == {"null", *values[:-1]}


@pytest.mark.parametrize("name", ["mysql_cdc_drain", "mysql_cdc_snapshot", "mysql_cdc_pipeline"])
def test_an_empty_form_does_what_an_untouched_one_does(fakes: Any, name: str) -> None:
    """Airflow's form sends null for a field that was cleared."""
    submit, _ = fakes
    dag = load(name)
    assert run_dag(dag).state == "success"
    untouched = submit.record["spec"]
    form = {field: None for field, shown in form_of(dag).items() if "null" in shown["schema"]["type"]}
    assert len(form) >= 4
    assert run_dag(load(name), form).state == "success"
    emptied = submit.record["spec"]
    changing = {"owner", "id", "run", "sealed"}
    assert {k: v for k, v in emptied.items() if k not in changing} == {
        k: v for k, v in untouched.items() if k not in changing
    }


@pytest.mark.parametrize(
    ("arguments", "params"),
    [(verify_arguments(), verify_params()), (adhoc_arguments(), adhoc_params()), (reading_arguments(), adhoc_params())],
)
def test_empty_fields_become_the_arguments_that_they_say(arguments: dict[str, str], params: dict[str, Any]) -> None:
    environment = DAG("templates", schedule=None).get_template_env()

    def rendered(form: dict[str, Any]) -> dict[str, str]:
        return {name: environment.from_string(text).render(params=form) for name, text in arguments.items()}

    untouched = {name: param.value for name, param in params.items()}
    emptied = {name: None if "null" in param.schema["type"] else param.value for name, param in params.items()}
    assert sum(value is None for value in emptied.values()) >= 5
    assert rendered(emptied) == rendered(untouched)


def test_the_dags_of_a_stream_have_the_same_forms_without_connections() -> None:
    dags = cdc_pipeline("shop", mysql_cdc_conn_id="mysql_shop", schedule=None)
    for dag_id, dag in dags.items():
        kind = dag_id.removeprefix("shop_")
        form = form_of(dag)
        starred = {field for field, shown in form.items() if "null" not in shown["schema"]["type"]}
        assert starred == STARS.get(f"mysql_cdc_{kind}", set())
        assert json.loads(json.dumps(form)) == form
