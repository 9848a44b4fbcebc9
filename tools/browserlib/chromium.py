"""A Chromium without a window: the machine's own, or Debian's, unpacked into the stack's cache without root."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from stacklib import debian
from stacklib.java import make_links_relative
from stacklib.locks import build_once
from stacklib.settings import cache_dir

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
PROGRAM_VARIABLE = "MYSQL_CDC_CHROMIUM"
_LIBRARIES = ("usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/pulseaudio", "lib/*-linux-gnu")
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


@dataclass(frozen=True, slots=True)
class Chromium:
    """A program, and the environment that it needs.

    Args:
        environment: Variables beside those of this process.
    """

    program: str
    environment: dict[str, str] = field(default_factory=dict)


def find_chromium() -> Chromium:
    """Return the program in ``MYSQL_CDC_CHROMIUM``, on PATH, or unpacked into the cache, where it is fetched once.

    Raises:
        StackError: There is none, and none can be fetched.
    """
    named = os.environ.get(PROGRAM_VARIABLE) or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if named:
        return Chromium(named)
    root = build_once(cache_dir() / "chromium", _unpack, "chromium", "a headless Chromium from Debian")
    # The packages are of the machine's own suite, so their C library is the one that runs here.
    libraries = [str(folder) for pattern in _LIBRARIES for folder in sorted(root.glob(pattern))]
    fonts = str(root / "fonts.conf")
    environment = {"LD_LIBRARY_PATH": ":".join(libraries), "FONTCONFIG_FILE": fonts}
    return Chromium(str(root / "usr/lib/chromium/chromium-headless-shell"), environment)


def _unpack(folder: Path) -> None:
    debian.fetch(PACKAGES, folder, "chromium", None)
    make_links_relative(folder)
    (folder / "fonts.conf").write_text(_FONTS, encoding="utf-8")
