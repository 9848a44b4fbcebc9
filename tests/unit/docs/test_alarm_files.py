"""The rules for Prometheus and the dashboard for Grafana: only metrics that exist, and expressions that are right."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_mysql_cdc.cdc.metrics.metric_table import METRICS
from airflow_provider_mysql_cdc.cdc.metrics.prometheus_text import LAG_METRICS, StreamLag, prometheus_name
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamCounts, StreamMetrics
from airflow_provider_mysql_cdc.cdc.operate.stream_status import StreamStatus
from airflow_provider_mysql_cdc.plugins.status_cache import READ

DOCS = Path(__file__).resolve().parents[3] / "docs"
RULES, DASHBOARD = DOCS / "alarms" / "prometheus-rules.yaml", DOCS / "alarms" / "grafana-dashboard.json"
_NAME = re.compile(r"\bmysql_cdc_[a-z_]+")


def rule_expressions() -> dict[str, str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def dashboard() -> dict[str, Any]:
    return dict(json.loads(DASHBOARD.read_text()))


def dashboard_expressions() -> list[str]:
    targets = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    variables = [v["query"]["query"] for v in dashboard()["templating"]["list"] if v["type"] == "query"]
    return targets + [re.fullmatch(r"label_values\((\w+), \w+\)", query)[1] for query in variables]  # type: ignore[index]


def everything() -> StreamMetrics:
    return StreamMetrics(
        StreamCounts(),
        snapshot={
            "CapturedTables": ["a.b"],
            "RemainingTableCount": 1,
            "RowsScanned": {"a.b": 1},
            "SnapshotCompleted": False,
            "SnapshotRunning": True,
        },
        streaming={"CapturedTables": ["a.b"], "Connected": True},
        at_ms=1,
    )


def exported() -> list[str]:
    """Return the samples that the exporter writes for a stream that has everything, a line each."""
    batch = {"ok": True, "ended_ms": 1}
    status = StreamStatus("s", 2, True, StreamLag(1, 1), everything(), batch, progress_ms=1)
    return [line for line in status.prometheus().splitlines() if not line.startswith("#")]


@pytest.mark.quick
def test_every_metric_that_they_name_exists() -> None:
    page = (DOCS / "metrics.md").read_text() + (DOCS / "page.md").read_text()
    known = {prometheus_name(metric) for metric in METRICS if not metric.absent} | {*LAG_METRICS, READ}
    used = {name for text in (*rule_expressions().values(), *dashboard_expressions()) for name in _NAME.findall(text)}
    assert len(used) > 15
    assert used <= known
    assert used <= {READ, *(line.split("{")[0] for line in exported())}
    assert {name for name in used if f"`{name}`" not in page} == set()


@pytest.mark.quick
def test_each_alert_says_which_stream_and_what_to_do() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert max(Counter(rule["alert"] for rule in rules).values()) == 1
    for rule in rules:
        label = "connection" if READ in rule["expr"] else "server"
        assert rule["annotations"]["summary"].startswith(f"{{{{ $labels.{label} }}}}: ")
        values = re.findall(r"\{\{ (\$value.*?) \}\}", rule["annotations"]["summary"])
        assert set(values) <= {"$value | humanizeDuration", "$value | humanize"}
        if "$value | humanizeDuration" in values:
            assert re.match(r"\w+_seconds >", rule["expr"]), "the value of an expression is its left side"
        assert rule["annotations"]["description"]
        assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.quick
def test_the_dashboard_can_be_imported() -> None:
    """What Grafana needs of a dashboard: ids, places that do not overlap, a data source that it asks for."""
    board = dashboard()
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    assert board["schemaVersion"] >= 36
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and variables["server"]["multi"]
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["h"] > 0
        assert panel["type"] in ("timeseries", "stat") and panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0
        assert all('server=~"$server"' in target["expr"] for target in panel["targets"])
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


@pytest.fixture(scope="module")
def promtool() -> str:
    from kit.promtool import find_promtool

    return find_promtool()


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=RULES.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.stack
def test_promtool_takes_the_rules_and_each_alert_fires_for_the_stream_that_is_ill(promtool: str) -> None:
    assert f"{len(rule_expressions())} rules found" in run(promtool, "check", "rules", str(RULES))
    assert "SUCCESS" in run(promtool, "test", "rules", "prometheus-rules-test.yaml")
    tested = (RULES.parent / "prometheus-rules-test.yaml").read_text()
    assert [name for name in rule_expressions() if f'alertname="{name}"' not in tested] == []


@pytest.mark.stack
def test_promtool_has_nothing_to_say_about_the_names_and_units_of_metrics(promtool: str) -> None:
    status = StreamStatus("s", 2, True, StreamLag(1, 1), everything(), {"ok": True, "ended_ms": 1}, progress_ms=1)
    command = [promtool, "check", "metrics"]
    done = subprocess.run(command, input=status.prometheus(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.stack
def test_promtool_takes_the_expressions_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    texts = [text.replace("$server", "shop|bank") for text in dashboard_expressions()]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(texts)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(texts)} rules found" in run(promtool, "check", "rules", str(file))


@pytest.mark.stack
def test_each_panel_shows_something_of_a_scraped_stream(promtool: str, tmp_path: Path) -> None:
    """Prometheus evaluates each expression over an hour of scrapes of one stream; one without a result is no alert."""
    texts = [text.replace("$server", "s").replace("$__rate_interval", "5m") for text in dashboard_expressions()]
    alerts = [{"alert": f"panel{n}", "expr": f"count({text}) > 0"} for n, text in enumerate(texts)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": alerts}]}))
    series = [{"series": line.rpartition(" ")[0], "values": f"{line.rpartition(' ')[2]}x60"} for line in exported()]
    expected = [{"eval_time": "30m", "alertname": alert["alert"], "exp_alerts": [{}]} for alert in alerts]
    tests = [{"interval": "1m", "input_series": series, "alert_rule_test": expected}]
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": [str(tmp_path / "panels.yaml")], "tests": tests}))
    assert len(texts) > 10 and "SUCCESS" in run(promtool, "test", "rules", str(tmp_path / "test.yaml"))
