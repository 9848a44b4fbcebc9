"""A run that is late at once: its deadline follows a second after it was queued, and its task outlasts that."""

from __future__ import annotations

import time
from datetime import timedelta

from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference, task

from airflow_provider_mysql_cdc.notifications.stream_notifier import MySqlCdcStreamNotifier

LATE = DeadlineAlert(
    reference=DeadlineReference.DAGRUN_QUEUED_AT,
    interval=timedelta(seconds=1),
    callback=AsyncCallback(MySqlCdcStreamNotifier, kwargs={"mysql_cdc_conn_id": "mysql_cdc_default"}),
)

with DAG(dag_id="late_run_of_a_test", schedule=None, deadline=LATE) as dag:

    @task(retries=0)
    def wait() -> None:
        """Wait."""
        time.sleep(600)

    wait()
