"""Debian's node_exporter and Prometheus on loopback, over files of a test. A server ends with its `with` block."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.torchrun import free_port

Series = tuple[str, tuple[tuple[str, str], ...]]


def series(text: str) -> list[Series]:
    """The name and the sorted labels of every sample, as often as it is there: the parser keeps duplicates."""
    return [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def duplicates(folder: Path) -> list[Series]:
    """The series that the files of a textfile folder have more than once: node_exporter keeps one of them."""
    found = Counter(entry for path in sorted(folder.glob("*.prom")) for entry in series(path.read_text("utf-8")))
    return [entry for entry, count in found.items() if count > 1]


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode("utf-8"))


@contextmanager
def _running(words: list[str], ready: str, log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(words, stdout=output, stderr=output) as server:
        try:
            until = time.monotonic() + 60
            while True:
                try:
                    _get(ready)
                    break
                except OSError as error:
                    assert server.poll() is None and time.monotonic() < until, f"{error}: {log.read_text()[-2000:]}"
                    time.sleep(0.1)
            yield
        finally:
            server.kill()  # what it holds is of no use, and to write it down takes a busy machine minutes


@contextmanager
def node_exporter(folder: Path, log: Path) -> Iterator[str]:
    """A node_exporter that reads a textfile folder: its address, HOST:PORT."""
    address = f"127.0.0.1:{free_port()}"
    words = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile"]
    words += [f"--collector.textfile.directory={folder}", f"--web.listen-address={address}"]
    with _running(words, f"http://{address}/metrics", log):
        yield address


def scraped(address: str) -> str:
    """What node_exporter shows of our files."""
    return _get(f"http://{address}/metrics")


class Prometheus:
    """A Prometheus that scrapes one node_exporter each second."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}/api/v1"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        answer = json.loads(_get(f"{self.url}/query?{urllib.parse.urlencode({'query': expression})}"))
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing, with their annotations."""
        found: list[dict[str, Any]] = json.loads(_get(f"{self.url}/alerts"))["data"]["alerts"]
        return found

    def until(self, expression: str, seconds: float = 30) -> list[dict[str, Any]]:
        """The series of an expression, once it has some."""
        end = time.monotonic() + seconds
        while not (found := self.query(expression)) and time.monotonic() < end:
            time.sleep(0.2)
        return found


@contextmanager
def prometheus(folder: Path, exporter: str, extra: Mapping[str, Any] | None = None) -> Iterator[Prometheus]:
    """A Prometheus with its data below a folder. `extra`: more of its configuration."""
    address = f"127.0.0.1:{free_port()}"
    scrape = {"job_name": "node", "static_configs": [{"targets": [exporter]}]}
    settings = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "scrape_configs": [scrape]}
    configuration = folder / "prometheus.yml"
    configuration.write_text(json.dumps({**settings, **(extra or {})}))  # JSON is YAML
    words = ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"]
    words += [f"--web.listen-address={address}", "--log.level=warn"]
    with _running(words, f"http://{address}/-/ready", folder / "prometheus.log"):
        yield Prometheus(address)
