"""Watch streams: a small DAG that looks at each every ten minutes, and a drain whose late runs are an alarm.

An example; put it into the DAG folder, name your streams, and give the notifiers somebody to tell, for example

    SlackNotifier(slack_conn_id="slack", channel="#data", text="{{ mysql_cdc_alarm_text }}")
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference, get_current_context, task

from airflow_provider_mysql_cdc.dag_factory import cdc_pipeline
from airflow_provider_mysql_cdc.notifications.stream_notifier import MySqlCdcStreamNotifier

STREAMS = ("mysql_shop", "mysql_bank")
NOTIFIERS: list[Any] = []

with DAG("watch_streams", schedule="*/10 * * * *", catchup=False, max_active_runs=1) as dag:

    @task(retries=0)
    def look(conn_id: str) -> None:
        """Say what is wrong with a stream."""
        notifier = MySqlCdcStreamNotifier(
            conn_id,
            max_lag=timedelta(minutes=15),
            max_idle=timedelta(hours=1),
            settings=True,
            notifiers=NOTIFIERS,
        )
        notifier(get_current_context())

    look.expand(conn_id=list(STREAMS))

# A run that is not done half an hour after it was queued is late. Airflow stores the arguments of the callback, so they
# are numbers, texts, lists and mappings; who is told is {"path": "...SlackNotifier", "kwargs": {...}}.
late = DeadlineAlert(
    reference=DeadlineReference.DAGRUN_QUEUED_AT,
    interval=timedelta(minutes=30),
    callback=AsyncCallback(
        MySqlCdcStreamNotifier, kwargs={"mysql_cdc_conn_id": "mysql_shop", "max_lag": 900, "notifiers": []}
    ),
)
cdc_pipeline(
    "shop",
    mysql_cdc_conn_id="mysql_shop",
    schedule="*/5 * * * *",
    dags=["snapshot", "drain"],
    dag_arguments={"deadline": late},
    default_args={"on_failure_callback": MySqlCdcStreamNotifier("mysql_shop", notifiers=NOTIFIERS)},
)
