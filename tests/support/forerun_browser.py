"""Headless Chromium, driven over WebDriver (W3C recommendation, plain HTTP and JSON), for tests and benchmarks."""

import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
START_S = 20.0


class Browser:
    """One window of a headless Chromium with a profile of its own."""

    def __init__(self, port: int, profile: Path) -> None:
        self.address = f"http://127.0.0.1:{port}"
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"]}
        logs = {"browser": "ALL", "performance": "ALL"}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": logs}}
        self.session = f"/session/{self.call('/session', {'capabilities': wanted})['sessionId']}"

    def call(self, path: str, body: object = None, method: str = "POST") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, method=method, data=data)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:  # the driver's own words; an answer left open would fail a later test
                reason = json.load(error)["value"]["message"]
        raise RuntimeError(reason)

    def open(self, address: str) -> None:
        """Load a page anew, and wait until it has replaced the present one: a busy driver answers before that."""
        self.run("window.left = true")
        self.call(f"{self.session}/url", {"url": address})
        _wait(lambda: self.run("return !window.left && document.readyState === 'complete'"), address)

    def run(self, script: str, *arguments: object) -> Any:
        return self.call(f"{self.session}/execute/sync", {"script": script, "args": arguments})

    def send(self, command: str, **parameters: object) -> Any:
        """Send one command of the Chrome DevTools Protocol."""
        return self.call(f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind: str) -> list[dict[str, Any]]:
        return list(self.call(f"{self.session}/se/log", {"type": kind}))

    def press(self, key: str) -> None:
        known = {"Enter": {"windowsVirtualKeyCode": 13, "text": "\r"}, "ArrowRight": {"windowsVirtualKeyCode": 39}}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **known[key])
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def width(self, pixels: int, height: int = 900) -> None:
        size = {"width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": pixels < 500}
        self.send("Emulation.setDeviceMetricsOverride", **size)


@contextlib.contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """Start ``chromedriver``, which must be installed, and a browser with an empty ``profile``; both end afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], **quiet)  # type: ignore[call-overload]  # both are ints
    try:
        _wait_for(port)
        browser = Browser(port, profile)
        yield browser
        browser.call(browser.session, method="DELETE")
    finally:
        driver.terminate()
        driver.wait()


def _wait_for(port: int) -> None:
    def answers() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/status").close()
        except urllib.error.URLError:
            return False
        return True

    _wait(answers, f"chromedriver on port {port}")


def _wait(ready: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)
