"""A stand-in for Azure Blob Storage on this machine, with one container."""

from __future__ import annotations

import base64
import datetime
import email.utils
import hashlib
import hmac
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / ".cache/azurite/node_modules/.bin/azurite-blob"
ACCOUNT = "devstoreaccount1"  # azurite has only this account, with this public key
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_SECONDS = 60.0  # to start


class Azurite:
    """The stand-in, which keeps its objects in memory.

    Attributes:
      bucket: The path of its container, "az://container".
      environment: Variables of a user with an account at this store.
    """

    bucket = "az://container"

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [PROGRAM, "--inMemoryPersistence", "--silent", "--disableTelemetry",
             "--skipApiVersionCheck", "--blobPort", str(port)],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        url = f"http://127.0.0.1:{port}/{ACCOUNT}"
        self.environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_ENDPOINT": url,
        }  # fmt: skip
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                _create_container(url)
                return
            except urllib.error.URLError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    self.stop()
                    raise
                time.sleep(0.1)

    def stop(self) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait()


def _create_container(url: str) -> None:
    """Create the container; `tt` has no function for it."""
    date = email.utils.format_datetime(datetime.datetime.now(datetime.UTC), usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    lines = [f"{name}:{value}" for name, value in headers.items()]
    resource = f"/{ACCOUNT}/{ACCOUNT}/container\nrestype:container"
    signed = "\n".join(["PUT", *[""] * 11, *lines, resource])
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    request = urllib.request.Request(
        f"{url}/container?restype=container", method="PUT", headers=headers
    )
    urllib.request.urlopen(request).close()
