"""Arguments as Airflow people give them: mapped, from other tasks, from templates and forms; refused where useless."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias, task
from airflow_home import run_dag
from fakes import FakePipeline

from airflow_provider_mysql_cdc.cdc.commit.offset_store import StoredState
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.operators.arguments import NAME_LENGTH, application_name, parse_bool, parse_text_map
from airflow_provider_mysql_cdc.operators.asset_events import DEFAULT_ALIAS
from airflow_provider_mysql_cdc.operators.drain import MySqlCdcDrainOperator
from airflow_provider_mysql_cdc.operators.incremental import MySqlCdcIncrementalSnapshotOperator
from airflow_provider_mysql_cdc.operators.reset import MySqlCdcResetOffsetOperator
from airflow_provider_mysql_cdc.operators.snapshot import MySqlCdcSnapshotOperator
from airflow_provider_mysql_cdc.sensors.binlog import MySqlBinlogSensor

pytestmark = pytest.mark.usefixtures("metadata_db")
OFFSETS = Asset("mysql_cdc_offsets")


def test_mapped_pipelines_keep_their_offsets_apart_in_one_asset(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, pipeline = fakes
    seen: dict[str, list[int]] = {"shop": [], "bank": []}

    def settle(self: FakePipeline, cfg: Any, store: Any, *_: Any) -> Any:
        state = store.load()
        seen[cfg.topic_prefix].append(state.epoch if state else 0)
        store.save(StoredState(epoch=(state.epoch if state else 0) + len(cfg.topic_prefix)), state)
        return pipeline.outcome

    monkeypatch.setattr(FakePipeline, "settle_offset", settle)
    monkeypatch.setenv(
        "AIRFLOW_CONN_MYSQL_CDC_BANK",
        json.dumps(
            {
                "conn_type": "mysql_cdc",
                "host": "other.example",
                "login": "cdc",
                "password": "other-pa55",
                "extra": {"topic.prefix": "bank", "kafka_conn_id": "kafka_cdc"},
            }
        ),
    )
    with DAG("mapped_pipelines", schedule=None) as dag:
        MySqlCdcDrainOperator.partial(task_id="drain", offset_asset="mapped_offsets").expand(
            mysql_cdc_conn_id=["mysql_cdc_default", "mysql_cdc_bank"]
        )
    mapped = dag.get_task("drain")
    assert (mapped.inlets, mapped.outlets) == ([Asset("mapped_offsets")], [AssetAlias(DEFAULT_ALIAS)])
    for _ in range(2):
        assert run_dag(dag).state == "success"
    assert seen == {"shop": [0, 4], "bank": [0, 4]}


def test_what_partial_and_default_args_say_of_assets_is_kept() -> None:
    with DAG("mapped_assets", schedule=None, default_args={"offset_asset": "by_default"}):
        drain = MySqlCdcDrainOperator.partial(task_id="a", inlets=[Asset("mine")]).expand(writers=[1, 2])
        sensor = MySqlBinlogSensor.partial(task_id="b").expand(mysql_cdc_conn_id=["x"])
        reset = MySqlCdcResetOffsetOperator.partial(task_id="c", offset="stored", confirm="shop", offset_asset=OFFSETS)
        mapped = reset.expand(mysql_cdc_conn_id=["x"])
    assert drain.inlets == [Asset("mine"), Asset("by_default")]
    assert drain.outlets == [AssetAlias(DEFAULT_ALIAS)]
    assert (sensor.inlets, list(sensor.outlets)) == ([Asset("by_default")], [])
    assert (mapped.inlets, mapped.outlets) == ([OFFSETS], [AssetAlias(DEFAULT_ALIAS)])


def test_an_offset_asset_that_airflow_does_not_know_beforehand_is_refused_by_name(
    fakes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, _ = fakes
    with DAG("mapped_offset_asset", schedule=None) as dag:
        MySqlCdcDrainOperator.partial(task_id="drain").expand_kwargs([{"offset_asset": "late"}])
    assert run_dag(dag).state == "failed"
    assert submit.record is None
    assert "pass offset_asset to partial(), not to expand()" in "".join(capfd.readouterr())
    with DAG("offset_asset_of_a_task", schedule=None), pytest.raises(TypeError, match="offset_asset is a"):
        MySqlCdcDrainOperator(task_id="drain", offset_asset=Asset.ref(name="x"))


def test_secrets_among_the_properties_of_a_mapped_task_are_masked_where_airflow_shows_them(fakes: Any) -> None:
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.utils.session import create_session

    submit, _ = fakes
    with DAG("mapped_secret", schedule=None) as dag:
        # Airflow itself masks what is named password, secret or token; it does not know this name.
        secret = {"producer.override.sasl.jaas.config": "hunter2-of-mapped"}
        MySqlCdcDrainOperator.partial(task_id="drain").expand(properties=[secret])
    run = run_dag(dag)
    assert run.state == "failed"
    assert submit.record is None
    with create_session() as session:
        rows = session.query(RenderedTaskInstanceFields).filter_by(dag_id="mapped_secret")
        stored = json.dumps([row.rendered_fields for row in rows])
    assert "sasl.jaas.config" in stored
    assert "hunter2-of-mapped" not in stored


def test_results_of_other_tasks_reach_every_argument_that_is_templated(fakes: Any) -> None:
    submit, _ = fakes
    with DAG("from_other_tasks", schedule=None) as dag:

        @task
        def given(value: Any) -> Any:
            return value

        def of(name: str, value: Any) -> Any:
            return given.override(task_id=f"give_{name}")(value)

        MySqlCdcDrainOperator(
            task_id="drain",
            master=of("master", "local[1]"),
            conf=of("conf", {"spark.executor.cores": 3, "spark.ui.enabled": False}),
            env_vars=of("env", {"MINE": 1}),
            properties=[of("properties", {"table.include.list": "shop.orders"}), {"drain.writers": 2}],
            name=of("name", "mine"),
            driver_memory=of("memory", "2g"),
            run_for="{{ 1 + 1 }}",
            run_arguments=["master", "conf", "env_vars"],
        )
    assert run_dag(dag).state == "success"
    argv, spec = submit.record["argv"], submit.record["spec"]
    assert argv[argv.index("--master") + 1] == "local[1]"
    assert argv[argv.index("--name") + 1] == "mine"
    assert argv[argv.index("--driver-memory") + 1] == "2g"
    assert "spark.executor.cores=3" in argv
    assert "spark.ui.enabled=false" in argv
    assert "spark.log.level=WARN" in argv
    assert submit.record["env"]["MINE"] == "1"
    assert (spec["properties"]["table.include.list"], spec["properties"]["drain.writers"]) == ("shop.orders", "2")
    assert spec["run_for_s"] > 0


@pytest.mark.parametrize("mapped", [False, True])
def test_templates_of_a_form_may_leave_arguments_empty(fakes: Any, mapped: bool) -> None:
    """What is not given renders as empty text, or as the text None."""
    submit, _ = fakes
    empty, none = "{{ params.nothing or '' }}", "{{ params.nothing }}"
    arguments = {
        **dict.fromkeys(("master", "env_vars", "application", "deploy_mode", "writers", "deferrable"), none),
        **dict.fromkeys(("conf", "name", "yarn_queue"), empty),
        **dict.fromkeys(("kafka_conn_id", "offset_conn_id", "properties", "run_for", "driver_memory"), none),
    }
    with DAG(f"empty_form_{mapped}", schedule=None, params={"nothing": None}) as dag:
        if mapped:
            MySqlCdcDrainOperator.partial(task_id="drain").expand_kwargs([arguments])
        else:
            MySqlCdcDrainOperator(task_id="drain", **arguments)
    assert run_dag(dag).state == "success"
    argv = submit.record["argv"]
    assert argv[argv.index("--master") + 1] == "local[2]"
    assert "--queue" not in argv
    assert argv[-2].endswith("drain_binlog.py")


def test_every_try_of_every_task_has_an_application_name_of_its_own(fakes: Any) -> None:
    submit, _ = fakes
    with DAG("names_of.Applications", schedule=None) as dag:
        MySqlCdcDrainOperator(task_id="drain")
    assert run_dag(dag).state == "success"
    argv = submit.record["argv"]
    name = argv[argv.index("--name") + 1]
    assert name.startswith("mysql-cdc-drain-names-of-applications-drain-")
    assert name.endswith("-try1")


class FakeTi:
    def __init__(self, **given: Any) -> None:
        self.__dict__.update({"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1, "try_number": 1} | given)


def test_application_names_are_short_plain_and_distinct() -> None:
    long = "manual__2026-11-22T23:34:05.123456+00:00_" + "Ünïcode/" * 20
    tis = [
        FakeTi(),
        FakeTi(dag_id="D"),
        FakeTi(map_index=0),
        FakeTi(try_number=2),
        FakeTi(run_id=long),
        FakeTi(run_id=long, try_number=11),
        FakeTi(run_id=long + "x"),
        FakeTi(dag_id="d-t", task_id="r"),
        FakeTi(dag_id="日本"),
    ]
    names = [application_name("drain", {"ti": ti}) for ti in tis]
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name) <= NAME_LENGTH
        assert all(c.isascii() and (c.islower() or c.isdigit() or c == "-") for c in name)
        assert name[0].isalpha()


@pytest.mark.parametrize("argument", ["application_args", "conn_id", "durable", "reconnect_on_retry", "java_class"])
def test_an_argument_of_spark_submit_that_has_no_effect_is_refused(argument: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TypeError, match=f"MySqlCdcDrainOperator does not take {argument}"):
            MySqlCdcDrainOperator(task_id="drain", **{argument: "x"})
        with pytest.raises(TypeError, match=f"MySqlCdcDrainOperator does not take {argument}"):
            MySqlCdcDrainOperator.partial(task_id="drain", **{argument: "x"})


@pytest.mark.parametrize("kind", [MySqlCdcSnapshotOperator, MySqlCdcIncrementalSnapshotOperator])
def test_what_reads_tables_takes_no_run_for(kind: Any) -> None:
    with pytest.raises(TypeError, match="run_for"):
        kind(task_id="snapshot", tables=["a.b"], run_for=60)


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="table"):
        MySqlCdcDrainOperator(task_id="drain", table="a.b")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        *((text, True) for text in (True, "True", "true", " TRUE ", "1", 1, "yes", "on", "y")),
        *((text, False) for text in (False, "False", "false", "0", 0, "", None, "None", "no", "off")),
    ],
)
def test_truth_values_of_forms_are_read_as_people_mean_them(value: Any, found: bool) -> None:
    assert parse_bool(value, "again") is found


@pytest.mark.parametrize("value", ["maybe", 2, "tru", []])
def test_what_is_no_truth_value_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="neither true nor false"):
        parse_bool(value, "again")


def test_a_snapshot_again_of_a_form_is_read_as_people_mean_it(fakes: Any) -> None:
    _, pipeline = fakes
    for number, (given, again) in enumerate([("1", True), ("yes", True), ("0", False), ("", False), ("false", False)]):
        with DAG(f"again_{number}", schedule=None) as dag:
            MySqlCdcSnapshotOperator(task_id="snapshot", again=given)
        assert run_dag(dag).state == "success"
        assert pipeline.again is again


@pytest.mark.parametrize("value", ["[1]", "nonsense", 7])
def test_settings_that_are_no_mapping_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="conf is not a mapping"):
        parse_text_map(value, "conf")


def test_settings_come_as_mapping_or_as_json() -> None:
    assert parse_text_map({"a": 1, "b": True, "c": None}, "conf") == {"a": "1", "b": "true"}
    assert parse_text_map('{"a": "x"}', "conf") == {"a": "x"}
    assert parse_text_map(" ", "conf") == parse_text_map(None, "conf") == {}
