"""Drive a headless Chromium over the DevTools protocol, by a pipe: no library, no port.

Chromium reads commands on file descriptor 3 and writes answers and events on 4, JSON with a zero byte behind each
(``--remote-debugging-pipe``).
"""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from browserlib.chromium import find_chromium

ANSWER_S = 60.0
"""Seconds within which the browser must answer a command."""
WAIT_S = 60.0
"""Seconds within which something must appear on a page."""
_FLAGS = (
    "--remote-debugging-pipe",
    "--no-sandbox",  # containers forbid what it needs; only pages of the tests are shown
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--force-color-profile=srgb",
    "about:blank",
)
_KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, "")}


class BrowserError(Exception):
    """The browser does not answer, refuses a command, or a page does not come to what is waited for."""


class Browser:
    """A browser with one page; to be used inside ``with``."""

    def __init__(self) -> None:
        chromium = find_chromium()
        self._profile = tempfile.mkdtemp(prefix="mysql-cdc-chromium-")
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        # The child's descriptors 3 and 4; a shell puts them there, whatever numbers they have here.
        script = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        command = ["bash", "-c", script, chromium.program, f"--user-data-dir={self._profile}", *_FLAGS]
        self._process = subprocess.Popen(
            command,
            pass_fds=(commands, answers),
            env={**os.environ, **chromium.environment, "HOME": self._profile},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        self._number, self._session = 0, ""
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Browser:
        self._reader.start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(ANSWER_S)
        os.close(self._to)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _read(self) -> None:
        rest = b""
        with os.fdopen(self._from, "rb", buffering=0) as stream:
            while part := stream.read(1 << 16):
                *messages, rest = (rest + part).split(b"\0")
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers.put(message)
                    else:
                        self.events.append(message)
        self._answers.put(None)

    def call(self, method: str, **params: Any) -> Any:
        """Send a command and return its result.

        Raises:
            BrowserError: The browser refuses it, does not answer, or has ended.
        """
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        try:
            while (answer := self._answers.get(timeout=ANSWER_S)) is not None:
                if answer["id"] == self._number:
                    if "error" in answer:
                        raise BrowserError(f"{method}: {answer['error']}")
                    return answer["result"]
        except queue.Empty:
            raise BrowserError(f"{method}: no answer in {ANSWER_S:.0f} s") from None
        raise BrowserError(f"{method}: the browser has ended")

    def open(self, url: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=url)

    def size(self, width: int, height: int) -> None:
        """Set the size of the page."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def color_scheme(self, name: str) -> None:
        """Set what the system prefers."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript on the page.

        Args:
            script: The expression; a promise is waited for.

        Raises:
            BrowserError: It throws.
        """
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, script: str, seconds: float = WAIT_S) -> Any:
        """Return the value of an expression once it is true.

        Raises:
            BrowserError: It does not become true; the text has what the page shows.
        """
        deadline = time.monotonic() + seconds
        # An element has no value that could be returned.
        value = f"((found) => typeof found === 'object' && found && 'nodeType' in found ? true : found)({script})"
        while time.monotonic() < deadline:
            try:
                if found := self.run(value):
                    return found
            except BrowserError as error:
                # While a page is being replaced there is none that could answer.
                if "Cannot find" not in str(error) and "TypeError" not in str(error):
                    raise
            time.sleep(0.05)
        raise BrowserError(f"{script} did not become true; the page shows: {self.run('document.body.innerText')}")

    def text(self, selector: str) -> str:
        """Return the text of an element, once it is there."""
        return str(self.wait_for(f"document.querySelector({json.dumps(selector)})?.innerText"))

    def click(self, selector: str) -> None:
        """Click an element, once it is there."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.wait_for(f"{element} && !{element}.disabled")
        self.run(f"{element}.click()")

    def key(self, name: str) -> None:
        """Press a key.

        Args:
            name: A character, or one of ``Enter``, ``Tab``, ``Escape``.
        """
        code, text = _KEYS.get(name, (ord(name.upper()[0]), name))
        params = {"key": name, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **params, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def type(self, text: str) -> None:
        """Write a text into the element that has the focus."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """Write a picture of the page as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Return what the browser complains about: errors of scripts, refused content, requests that failed."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        return found

    def requests(self, wanted: Callable[[str], bool]) -> list[str]:
        """Return the addresses of requests that the page has made."""
        sent = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if wanted(url)]
