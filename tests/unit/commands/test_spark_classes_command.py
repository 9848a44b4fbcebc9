"""``mysql-cdc spark-classes``; the tests' own drivers start from its file (tests/kit/spark_classes.py)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.commands import spark_classes

# Leaves a file when it is asked to, and says in "calls" what it was asked for.
SUBMIT = """#!/bin/bash
echo "$*" >> "{calls}"
for word in "$@"; do
  case "$word" in *ArchiveClassesAtExit=*) file="${{word##*ArchiveClassesAtExit=}}"; {leave} ;; esac
  case "$word" in *-Xshare:on*) {map} ;; esac
done
"""


def spark(
    home: Path, monkeypatch: pytest.MonkeyPatch, leave: str = 'echo classes > "$file"', map_: str = "true"
) -> Path:
    """Put a spark-submit and a Java there; return the file with what spark-submit was called with."""
    calls = home / "calls"
    for name, text in {
        "spark/bin/spark-submit": SUBMIT.format(calls=calls, leave=leave, map=map_),
        "java/bin/java": "#!/bin/sh\n",
    }.items():
        program = home / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home / "spark"))
    monkeypatch.setenv("JAVA_HOME", str(home / "java"))
    for name in ("SPARK_CONF_DIR", "PYSPARK_PYTHON", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    return calls


def write(path: Path) -> str:
    out = io.StringIO()
    assert spark_classes.run(SimpleNamespace(output=path), out) == 0  # type: ignore[arg-type]
    return out.getvalue()


def test_the_file_is_there_once_a_job_has_started_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = spark(tmp_path, monkeypatch)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))  # a folder with files, behind the jars
    text = write(tmp_path / "kept.jsa")
    assert (tmp_path / "kept.jsa").read_text() == "classes\n"
    conf = json.loads(text[text.index("{") :])["conf"]
    assert conf == {"spark.driver.defaultJavaOptions": f"-XX:SharedArchiveFile={tmp_path / 'kept.jsa'}"}
    left, started = calls.read_text().splitlines()
    assert "ArchiveClassesAtExit=" in left and "-Xshare:on" not in left
    assert "SharedArchiveFile=" in started and "-Xshare:on" in started
    assert left.endswith("empty_job.py") and Path(left.split()[-1]).is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["calls", "java", "kept.jsa", "spark"]


@pytest.mark.parametrize(
    ("leave", "map_", "why"),
    [
        ("true", "true", "created no archive"),
        ("echo no room; exit 1", "true", "no room"),
        ('echo classes > "$file"', "echo Unable to use shared archive; exit 1", "Unable to use shared archive"),
    ],
)
def test_what_a_jvm_cannot_keep_or_use_is_reported_and_the_file_before_stays(
    leave: str, map_: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark(tmp_path, monkeypatch, leave, map_)
    (tmp_path / "kept.jsa").write_text("before")
    with pytest.raises(ConfigError, match=why):
        write(tmp_path / "kept.jsa")
    assert (tmp_path / "kept.jsa").read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "calls") == ["java", "kept.jsa", "spark"]


def test_settings_on_the_classpath_are_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM ends with "Cannot have non-empty directory in paths", behind a minute of work."""
    calls = spark(tmp_path, monkeypatch)
    settings = tmp_path / "spark" / "conf"
    settings.mkdir()
    write(tmp_path / "kept.jsa")
    calls.unlink()
    (settings / "spark-defaults.conf").write_text("spark.ui.enabled false\n")
    with pytest.raises(ConfigError, match="contains files") as caught:
        write(tmp_path / "kept.jsa")
    assert str(settings) in caught.value.message() and not calls.exists()


def test_without_spark_or_java_there_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark(tmp_path, monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="Java was not found"):
        write(tmp_path / "kept.jsa")


def test_a_folder_that_is_not_there_is_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = spark(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        write(tmp_path / "none" / "kept.jsa")
    assert str(tmp_path / "none" / "kept.jsa") in caught.value.message() and not calls.exists()


def test_a_job_without_an_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark(tmp_path, monkeypatch, leave="exec sleep 60")
    monkeypatch.setattr(spark_classes, "_JOB_TIMEOUT_S", 0.5)
    with pytest.raises(ConfigError, match="took more than"):
        write(tmp_path / "kept.jsa")


def test_a_collector_that_is_chosen_elsewhere_is_not_chosen_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM with two does not start: "Multiple garbage collectors selected"."""
    calls = spark(tmp_path, monkeypatch)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:+UseG1GC")
    write(tmp_path / "kept.jsa")
    assert calls.exists() and "UseSerialGC" not in calls.read_text()
