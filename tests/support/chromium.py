"""A headless Chromium, controlled by its DevTools protocol through a pipe, without a port."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
_LONGEST = 60  # seconds to wait for an answer


def find_chromium():
    """Return the path of the program, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A browser with one tab, which records the messages and requests of its pages."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        self._process = subprocess.Popen(
            [
                "bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "chromium", find_chromium(),
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--remote-debugging-pipe", "--no-first-run", f"--user-data-dir={self._folder.name}",
                "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
                "about:blank",
            ],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.events = []
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._write)
        self._process.terminate()
        self._process.wait(_LONGEST)
        os.close(self._read)
        self._folder.cleanup()

    def call(self, method, **parameters):
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == number:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def _next(self):
        until = time.monotonic() + _LONGEST
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, until - time.monotonic()))
            assert ready, "Chromium does not answer"
            part = os.read(self._read, 1 << 16)
            assert part, "Chromium has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path, *, width=1200, scheme="light"):
        """Open a file in a window of this width and color scheme."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
            mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=path.resolve().as_uri())
        until = time.monotonic() + _LONGEST
        while self.value("document.readyState") != "complete":
            assert time.monotonic() < until
            time.sleep(0.02)

    def value(self, expression):
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self):
        """Return the messages of the console, and errors."""
        methods = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [each for each in self.events if each["method"] in methods]

    def requests(self):
        """Return the addresses that the page requested."""
        sent = [each for each in self.events if each["method"] == "Network.requestWillBeSent"]
        return [each["params"]["request"]["url"] for each in sent]

    def screenshot(self, path, *, is_whole=True):
        """Write a picture of the whole page, or of its first screen."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=is_whole, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":  # `python chromium.py page.html picture.png`
    with Chromium() as browser:
        browser.open(Path(sys.argv[1]))
        browser.screenshot(Path(sys.argv[2]), is_whole=False)
