"""What the local stack fetches: complete or not there, from the machine's own sources, one clear line on failure."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kit.cases import case
from stacklib import commands, debian, java
from stacklib.errors import StackError
from stacklib.locks import build_once


def one_line(error: StackError) -> str:
    text = str(error)
    assert "\n" not in text
    return text


class TestBuildOnce:
    def test_a_failed_build_leaves_no_target(self, tmp_path: Path) -> None:
        def broken(folder: Path) -> None:
            (folder / "half").write_text("x")
            raise StackError("fetching", "the line broke", "try again")

        with pytest.raises(StackError):
            build_once(tmp_path / "thing", broken, "test", "a thing")
        assert not (tmp_path / "thing").exists()

    def test_leftovers_of_an_interrupted_build_are_not_taken_over(self, tmp_path: Path) -> None:
        (tmp_path / ".thing.partial").mkdir()
        (tmp_path / ".thing.partial" / "half").write_text("x")
        done = build_once(tmp_path / "thing", lambda folder: (folder / "whole").touch(), "test", "a thing")
        assert [path.name for path in done.iterdir()] == ["whole"]
        assert not (tmp_path / ".thing.partial").exists()

    def test_runs_at_once_build_once(self, tmp_path: Path) -> None:
        built: list[int] = []

        def slow(folder: Path) -> None:
            built.append(1)
            time.sleep(0.1)

        threads = [
            threading.Thread(target=build_once, args=(tmp_path / "thing", slow, "test", "a thing")) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert built == [1]


class TestCommands:
    def test_a_missing_tool_is_one_line_with_a_remedy(self) -> None:
        with pytest.raises(StackError) as caught:
            commands.require("no-such-tool-here", "unpacking", "install it")
        assert one_line(caught.value) == "unpacking: the program `no-such-tool-here` is missing; install it"

    def test_signs_of_a_missing_network_become_one_line(self) -> None:
        for output in [
            "Temporary failure resolving 'host'",
            "java.net.UnknownHostException: host",
            "curl: Connection refused",
        ]:
            with case(output):
                with pytest.raises(StackError, match="registry cannot be reached") as caught:
                    commands.run(
                        [sys.executable, "-c", f"import sys; print({output!r}); sys.exit(1)"], "fetching", "retry"
                    )
                one_line(caught.value)


DEB822 = """\
# the archive
Types: deb
URIs: http://mirror.example/debian-security
Suites: trixie-security
Components: main

Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: trixie trixie-updates
Components: main contrib
Signed-By: /usr/share/keyrings/archive.gpg
"""


class TestMachineSource:
    def apt(self, root: Path, **files: str) -> Path:
        (root / "sources.list.d").mkdir()
        for name, text in files.items():
            target = root / "sources.list" if name == "main" else root / "sources.list.d" / name.replace("_", ".")
            target.write_text(text)
        return root

    def test_deb822_files_are_read_past_the_security_archive(self, tmp_path: Path) -> None:
        source = debian.machine_source(self.apt(tmp_path, debian_sources=DEB822))
        assert source == debian.Source("http://mirror.example/debian/", "trixie", "/usr/share/keyrings/archive.gpg")

    def test_one_line_files_are_read(self, tmp_path: Path) -> None:
        text = "# deb http://other/debian sid main\ndeb [arch=amd64 signed-by=/k.gpg] https://m/debian bookworm main\n"
        source = debian.machine_source(self.apt(tmp_path, main=text))
        assert source == debian.Source("https://m/debian", "bookworm", "/k.gpg")

    def test_a_machine_without_a_debian_source_gets_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(StackError, match="MYSQL_CDC_MYSQL_HOST") as caught:
            debian.machine_source(tmp_path)
        one_line(caught.value)


# In parts, so that they stand nowhere in the repository, not even here.
REGISTRIES = (
    ("debian", "org"), ("ubuntu", "com"), ("maven", "org"), ("maven", "apache", "org"), ("sonatype", "org"),
    ("confluent", "io"), ("pypi", "org"), ("pythonhosted", "org"), ("docker", "io"), ("docker", "com"), ("ghcr", "io"),
    ("quay", "io"), ("npmjs", "org"), ("crates", "io"), ("golang", "org"),
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[3]


def tracked() -> list[Path]:
    """Return the files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def test_no_registry_host_is_written_in_the_repository() -> None:
    hosts = re.compile(
        rb"(?i)(?<![\w@])(?:[\w-]+\.)*(?:"
        + b"|".join(b"[.]".join(p.encode() for p in h) for h in REGISTRIES)
        + rb")\b(?!\.)"
    )
    found = {str(path.relative_to(ROOT)): m[0] for path in tracked() if (m := hosts.search(path.read_bytes()))}
    assert found == {}
    assert hosts.search(b"see " + b".".join((b"files", b"pythonhosted", b"org")) + b"/packages")


def test_no_address_is_written_in_the_scripts() -> None:
    scripts = Path(debian.__file__).parent
    for path in [*scripts.glob("*.py"), *(ROOT / "scripts" / "lib").glob("*.sh")]:
        text = re.sub(r"\b(PLAINTEXT|CONTROLLER|spark|sc)://", "", path.read_text(encoding="utf-8"))
        text = text.replace('xmlns:m="http://ant.apache.org/ivy/maven"', "")  # a name
        assert "://" not in text.replace("http://{LOOPBACK}", ""), path


def test_absolute_links_of_an_unpacked_tree_are_turned_inward(tmp_path: Path) -> None:
    (tmp_path / "etc" / "java").mkdir(parents=True)
    (tmp_path / "etc" / "java" / "security").write_text("policy")
    (tmp_path / "usr" / "lib").mkdir(parents=True)
    inside, outside = tmp_path / "usr" / "lib" / "security", tmp_path / "usr" / "lib" / "outside"
    inside.symlink_to("/etc/java/security")
    outside.symlink_to("/no/such/file/there")
    java.make_links_relative(tmp_path)
    assert inside.read_text() == "policy" and inside.resolve().is_relative_to(tmp_path)
    assert str(outside.readlink()) == "/no/such/file/there"


class TestTrustStore:
    CERTIFICATES = (b"first certificate", b"second")

    @pytest.mark.skipif(shutil.which("keytool") is None, reason="needs Java's keytool")
    def test_java_reads_the_machines_certificates_back(self, tmp_path: Path) -> None:
        certificates = java._certificates()[:5]
        (tmp_path / "store").write_bytes(java.trust_store(certificates))
        command = ["keytool", "-list", "-keystore", str(tmp_path / "store"), "-storepass", "changeit"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert listed.count("trustedCertEntry") == len(certificates)


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("old", "11.0.2"), ("new", "21.0.1")):
        (tmp_path / name / "bin").mkdir(parents=True)
        program = tmp_path / name / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'new' / 'bin'}:/usr/bin:/bin")
    found = java.find_java()
    assert (found.home, found.version, found.origin) == (tmp_path / "new", 21, "PATH")
