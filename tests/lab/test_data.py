"""Data on real nodes: a download that is cut, and a folder that is shared or only has the same name."""

from __future__ import annotations

import hashlib
import http.server
import random
import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.lab import images, inventory, registry
from tests.lab.conftest import RackMaker
from tests.lab.node_spec import NodeSpec
from tests.lab.product import PROJECT, Product, Ran

DATA = random.Random(2).randbytes(2_000_000)
SHA = hashlib.sha256(DATA).hexdigest()


@contextmanager
def server(address: str, every: int) -> Iterator[tuple[str, list[str]]]:
    """Serves DATA with ranges, and breaks off after `every` bytes each time."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            span = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            begin = int(span[1]) if span else 0
            asked.append(self.client_address[0])
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(DATA) - begin))
            self.send_header("ETag", '"one"')
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(DATA) - 1}/{len(DATA)}")
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(DATA[begin : begin + every])

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True

    with Server((address, 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://{address}:{listening.server_port}/text_document.bin", asked
        listening.shutdown()


def test_a_data_set_comes_whole_over_a_line_that_breaks(rack: RackMaker, tmp_path: Path) -> None:
    lab = rack(2)
    product = Product(tmp_path)
    with server(str(lab.slot.gateway), every=700_000) as (url, asked):
        own = {"folder": "/data/own", "files": [{"url": url, "sha256": SHA}]}
        data = {"gpu": "cpu", "tuning": {"numa_balancing": None}, "datasets": {"own": own}}
        hosts = lab.inventory(tmp_path / "lab.py", data)
        done = product.deploy(hosts, "datasets", "-y")
        assert done.code == 0, done.text
        for node in lab:
            assert node.exec("sha256sum < /data/own/text_document.bin").stdout.split()[0] == SHA
            assert ".part" not in node.exec("ls -A /data/own").stdout
        requests = len(asked)
        assert requests == 2 * 4, "one for the length and three portions on each node"
        done = product.deploy(hosts, "datasets", "-y")
        assert done.code == 0 and len(asked) == requests, done.text
        data["datasets"]["own"]["files"][0]["sha256"] = "0" * 64  # type: ignore[index]
        done = product.deploy(lab.inventory(tmp_path / "lab.py", data), "datasets", "-y")
        assert done.code == 1 and "another file than the one asked for" in " ".join(done.text.split()), done.text
        assert lab["node1"].exec("sha256sum < /data/own/text_document.bin").stdout.split()[0] == SHA


def test_a_folder_of_the_same_name_is_not_a_shared_one(rack: RackMaker, tmp_path: Path) -> None:
    lab = rack(2)
    one, other = (lab.host_data(node) for node in lab)
    # a and b are one machine, so what a writes b sees; c has a folder of its own.
    members = [("a", one), ("b", one), ("c", other)]
    deploy = tmp_path / "deploy.py"
    calls = "".join(
        f"shared_folder.{name}(folder='/shared/cache', token='run-1')\n"
        for name in ("write_token", "see_token", "remove_token")
    )
    deploy.write_text(f"from shakedown.operations import shared_folder\n{calls}")
    product = Product(PROJECT)
    done = product.run("pyinfra", "-y", inventory.write(tmp_path / "two.py", "lab", members[:2], {}), deploy)
    assert done.code == 0, done.text
    done = product.run("pyinfra", "-y", inventory.write(tmp_path / "three.py", "lab", members, {}), deploy)
    assert done.code == 1
    assert "[c] /shared/cache is not the folder that a has" in done.text and "[b] /shared" not in done.text
    for node in lab:
        assert node.exec("ls -A /shared/cache").stdout == ""


def test_prepared_data_gets_its_name_when_it_is_whole(rack: RackMaker, tmp_path: Path) -> None:
    lab = rack(1, NodeSpec(docker=True))
    (node,) = lab
    node.wait_for_docker()
    deploy = tmp_path / "deploy.py"

    def prepare(script: str) -> Ran:
        asked = {
            "image": image.tagged,
            "command": ["sh", "-c", script],
            "folder": "/data/wiki",
            "workdir": "/",
            "variables": {"DATASET": "wiki", "DATA_DIR": "/data"},
        }
        deploy.write_text(f"from shakedown.operations import dataset\ndataset.prepare(**{asked!r})\n")
        return Product(PROJECT).run("pyinfra", "-y", "-v", lab.inventory(tmp_path / "lab.py"), deploy)

    with registry.serve(lab) as store:
        image = store.publish(images.tiny())
        pulled = f"images.pull(reference={image.tagged!r}, insecure=True)"
        deploy.write_text(f"from shakedown.operations import images\n{pulled}\n")
        assert Product(PROJECT).run("pyinfra", "-y", lab.inventory(tmp_path / "lab.py"), deploy).code == 0
    done = prepare("echo '<html>' > $DATA_DIR/$DATASET.idx; echo x > $DATA_DIR/$DATASET.bin")
    assert done.code == 1 and "left no Megatron index" in done.text
    assert prepare("echo MMIDIDX > $DATA_DIR/a.idx; echo x > $DATA_DIR/a.bin; exit 3").code == 1
    assert node.exec("ls -d /data/wiki", check=False).stdout == "", "nothing half there under the final name"
    whole = "echo MMIDIDX > $DATA_DIR/$DATASET.idx; echo x > $DATA_DIR/$DATASET.bin"
    done = prepare(whole)
    assert done.code == 0, done.text
    assert node.read("/data/wiki/wiki.idx") == "MMIDIDX\n"
    assert "No changes" in prepare(whole).text
    node.exec("rm /data/wiki/.shakedown-prepared")
    assert "Shakedown did not prepare it" in prepare(whole).text
    assert node.exec("docker ps --all --quiet").stdout == ""
