"""How drivers at a Spark Connect server end, and how they reach it through TLS: real processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit.connect_server import RunningServer
from kit.spark_cluster import wait_until
from kit.tls_proxy import tls_proxy
from pipelinelib.submit import ROOT

pytestmark = [pytest.mark.spark]

DRIVER = """
import sys, threading
from airflow_provider_mysql_cdc.cdc.job.job_spec import ConnectSettings
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.spark.connect_main import connect_runner
from kit import sample_tasks

def work(runner, task, **arguments):
    return runner.run(task, 1, arguments, barrier=False)

try:
    with connect_runner(ConnectSettings(sys.argv[1]), "a stream", print, 75) as runner:
        if len(sys.argv) == 2:
            print("result", work(runner, sample_tasks.echo, value=7)[0][1])
        else:
            # As the writers that live from batch to batch: their stage has a thread of its own, which is waited for.
            living = threading.Thread(target=work, args=(runner, sample_tasks.hold), kwargs={"file": sys.argv[2]})
            living.start()
            living.join()
except CdcError as error:
    print(error.message())
    sys.exit(78)
"""


def driver(*arguments: str, **env: str) -> subprocess.Popen[str]:
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests"), str(ROOT / "tools")))
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments],
        env={**os.environ, "PYTHONPATH": path, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.days("odd")
def test_a_driver_that_is_asked_to_end_ends_the_operations_of_its_other_threads(
    connect_server: RunningServer, tmp_path: Path
) -> None:
    """Without that it would wait for them, until whoever asked kills it, and they would go on."""
    file, logged = tmp_path / "running", len(connect_server.log())
    with driver(connect_server.address, str(file)) as process:
        try:
            wait_until(file.exists, 60, "the task does not run")
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            file.unlink(missing_ok=True)
    assert process.returncode == 75, output
    assert "Asked to cancel jobs with tag" in connect_server.log()[logged:]


@pytest.mark.exhaustive
def test_a_token_goes_through_tls_to_a_server_whose_certificate_is_known(
    connect_server: RunningServer, tmp_path: Path
) -> None:
    with tls_proxy(connect_server.port, tmp_path) as proxy:
        address = f"sc://127.0.0.1:{proxy.port}/;token={connect_server.token};use_ssl=true;user_id=cdc"
        with driver(address, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(proxy.certificate)) as trusting:
            output, _ = trusting.communicate(timeout=60)
        assert trusting.returncode == 0 and "result 7" in output, output
