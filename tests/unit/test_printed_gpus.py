"""The reader of GPUs, held against what amd-smi has printed on real machines (tests/data/machines/amdsmi.toml)."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shakedown.desired import profiles
from shakedown.node import smi
from shakedown.node.tree import Tree, is_unreadable

MACHINES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parents[1] / "data/machines/amdsmi.toml").read_text())[
    "machine"
]
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_PAGES = ("retired", "pending", "un_res")


def from_amd_smi(text: str) -> Any:
    """Return the first GPU of what amd-smi has printed: JSON of either form, indented text; all rows of a table."""
    text = text.strip()
    if text.startswith(("{", "[")):
        answer = json.loads(text)
        return answer["gpu_data"][0] if isinstance(answer, dict) else answer[0]
    if not text.startswith("GPU:"):
        return list(csv.DictReader(text.splitlines()))
    blocks: dict[str, Any] = {}
    block = blocks
    for line in text.splitlines()[1:]:
        name, _, value = line.strip().partition(": ")
        if name.endswith(":"):
            block = blocks.setdefault(name.rstrip(":").lower(), {})
        else:
            block[name if block is blocks.get("fw_list") else name.lower()] = value
    return blocks


def quantity(value: Any) -> float:
    """Return bytes, watts, degrees or GT/s of {"value": 36, "unit": "C"} or "196592 MB"; a word stands as it is."""
    if value in (None, "N/A"):
        raise KeyError(value)
    number, unit = (value["value"], value["unit"]) if isinstance(value, dict) else str(value).split()
    return float(number) * _UNITS.get(unit, 1)


def answers(machine: dict[str, Any]) -> dict[str, Any]:
    """Return what AMD's functions would have answered for the first GPU; a function without an output is absent."""
    printed = {command: from_amd_smi(text) for command, text in machine["outputs"].items()}
    static, metric = printed["static"], printed.get("metric", {})
    limit = static.get("limit", {})
    cap = limit.get("ppt0", limit)
    memory = metric.get("mem_usage", {})
    found: dict[str, Any] = {"gpu_asic_info": {"asic_serial": "N/A", **static["asic"]}}
    if "driver" in static:
        found["gpu_driver_info"] = {"driver_version": static["driver"]["version"]}
    if total := static.get("vram", {}).get("size", memory.get("total_vram")):
        found["gpu_memory_total"] = quantity(total)
    if memory:
        found["gpu_memory_usage"] = quantity(memory["used_vram"])
    if "power" in metric:
        found["power_info"] = {"current_socket_power": quantity(metric["power"]["socket_power"])}
    if "temperature" in metric:
        found["temp_metric"] = quantity(metric["temperature"]["hotspot"])
    if cap:
        names = {"power_cap": ("socket_power_limit", "socket_power"), "max_power_cap": ("max_power_limit", "max_power")}
        caps = {name: quantity(cap.get(newer, cap.get(older))) for name, (newer, older) in names.items()}
        found["power_cap_info"] = {"default_power_cap": "N/A", **caps}
    if "bad_pages" in printed:
        assert {printed["bad_pages"][name.lower()] for name in _PAGES} == {"No bad pages found."}
        found["gpu_bad_page_info"] = []
    if "bad_page_threshold" in static.get("ras", {}):
        found["gpu_bad_page_threshold"] = static["ras"]["bad_page_threshold"]
    if "firmware" in printed:
        rows = printed["firmware"]["fw_list"].items()
        found["fw_info"] = {
            "fw_list": [{"fw_name": SimpleNamespace(name=f"AMDSMI_FW_ID_{name}"), "fw_version": v} for name, v in rows]
        }
    if "process" in printed:
        found["gpu_process_list"] = list(processes(printed["process"]))
    if "partition" in printed:
        found["gpu_compute_partition"] = printed["partition"][0]["accelerator_type"]
        found["gpu_memory_partition"] = printed["partition"][0]["memory"]
    if "xgmi" in printed:
        rate = int(quantity(printed["xgmi"][0]["bit_rate"]))
        found["link_metrics"] = {"links": [{"bdf": bdf, "bit_rate": rate} for bdf in machine["list"][1:]]}
        found["topo_get_link_type"] = {"type": smi._AMDSMI["links"].index(printed["xgmi"][0]["link_type"]), "hops": 1}
    return found


def processes(printed: Any) -> Any:
    """Yield the processes of the first GPU, of a table or of JSON."""
    if isinstance(printed, list):
        rows = [(row["name"], row["pid"], row["vram_mem"]) for row in printed if row["gpu"] == "0"]
    else:
        infos = [entry["process_info"] for entry in printed["process_list"]]
        rows = [(info["name"], info["pid"], quantity(info["memory_usage"]["vram_mem"])) for info in infos]
    for name, pid, memory in rows:
        yield {"name": name, "pid": int(pid), "memory_usage": {"vram_mem": int(memory)}}


class Printed:
    """AMD's Python package, as far as amd-smi has printed what it answers."""

    AmdSmiMemoryType = AmdSmiTemperatureType = AmdSmiTemperatureMetric = SimpleNamespace(VRAM=0, HOTSPOT=1, CURRENT=0)

    def __init__(self, machine: dict[str, Any]) -> None:
        self.answers = answers(machine)
        self.amdsmi_interface = SimpleNamespace()

    def __getattr__(self, name: str) -> Any:
        name = name.removeprefix("amdsmi_get_").removeprefix("amdsmi_")
        if name.endswith(("memory_total", "memory_usage", "power_info", "driver_info", "fw_info", "temp_metric")):
            return lambda *_: self.answers.get(name, "N/A")
        if name not in self.answers:
            raise AttributeError(name)
        return lambda *_: self.answers[name]


def flat(reading: Any) -> Any:
    """Return a reading as the data write it."""
    if is_unreadable(reading):
        return "missing" if reading["unreadable"] == "missing" else reading
    return reading


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine["machine"]))
def test_a_gpu_is_read_as_amd_smi_has_printed_it(machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    bdfs = machine["list"]
    gpus = smi.Gpus(Tree("/nowhere"), Printed(machine), (26, 2, 1), {bdf: f"handle of {bdf}" for bdf in bdfs})
    monkeypatch.setattr(smi, "open_library", lambda tree, library: gpus)
    part = dict(smi.read(gpus.tree, "a library")["gpus"][bdfs[0]])
    part |= {name: smi.read_health(gpus.tree, "a library", name)[bdfs[0]] for name in smi.READINGS}
    seen: dict[str, Any] = {name: flat(part[name]) for name in machine["wanted"]}
    for name, keys in {"bad_pages": ("retired", "pending", "unreservable", "limit"), "power_cap": ()}.items():
        if isinstance(seen.get(name), dict):
            values = [flat(seen[name][key]) for key in keys or ("watts", "default_watts", "most_watts")]
            seen[name] = [value for value in values if value != "missing" or not keys]
    if isinstance(seen.get("processes"), list):
        seen["processes"] = [[entry["pid"], entry["name"], entry["vram_bytes"]] for entry in seen["processes"]]
    if isinstance(seen.get("peers"), dict):
        ((kind, hops, gts),) = {(peer["kind"], peer["hops"], peer["gts"]) for peer in seen["peers"].values()}
        seen["peers"] = [len(part["peers"]), kind, hops, gts]
    assert seen == machine["wanted"]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: str(machine["machine"]))
def test_the_profile_asks_for_no_more_memory_than_the_gpu_has(machine: dict[str, Any]) -> None:
    """What a driver reports is up to 0.2 % less than the data sheet's figure, which the profile has."""
    profile = tomllib.loads((Path(profiles.__file__).parent / f"profiles/gpu/{machine['gpu']}.toml").read_text())["gpu"]
    found = answers(machine)
    assert found["gpu_asic_info"].get("device_id", "").removeprefix("0x") in " ".join(profile["pci_ids"])
    total = found.get("gpu_memory_total")
    assert total is None or 0.998 < total / (int(profile["vram_bytes"].removesuffix("G")) << 30) <= 1
