"""Runs to be packed, and archives that nobody should unpack."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from shakedown.desired.models import TOGETHER
from shakedown.logs.kept_logs import KeptLog, LogFile, LogQuota
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunNode, RunRecord, new_run_id, now
from shakedown.runs.judging import judge_run, verdict_of
from shakedown.state.findings import Finding, Verdict
from tests.plans import small
from tests.states import bare

LOGS = Path(__file__).parent / "data/logs"
COUNTERS = {"ethtool/eth0/rx_errors": 0}


def a_run(root: Path, names: list[str], log: str = "rocm.log", more: bytes = b"") -> RunDirectory:
    """A run over nodes of these names, judged: the last one has the iteration lines, `more` stands in every log."""
    directory = RunDirectory.create(new_run_id(), root)
    plan = small(len(names), iterations=20)
    nodes = [each.model_copy(update={"name": name}) for each, name in zip(plan.nodes, names, strict=True)]
    evidence = Evidence(
        exit_codes=dict.fromkeys(names, 0),
        counters_before=dict.fromkeys(names, COUNTERS),
        counters_after=dict.fromkeys(names, COUNTERS),
    )
    record = RunRecord(run_id=directory.path.name, started_at=now(), inventory="i.py", desired_digest="0")
    job = JobRecord(plan=plan.model_copy(update={"nodes": nodes}))
    for number, name in enumerate(names, 1):
        text = (LOGS / log).read_bytes() if number == len(names) else b"rank 0\n"
        kept = _keep(directory, name, text + more.replace(b"NODE", name.encode()))
        evidence.logs[name] = [kept]
        job.logs[name] = [kept.path]
        record.nodes.append(RunNode(name=name, verdict=Verdict.OK, part="trained", node_rank=number - 1))
        record.findings.append(
            Finding(name="thp", node=name, verdict=Verdict.OK, wanted="always", actual="always", evidence=f"of {name}")
        )
        state = bare(number).model_dump(mode="json")
        state["system"]["hostname"] = name
        directory.write(f"states/{kept.path.split('/')[1]}.json", json.dumps(state))
    record.jobs = [job]
    record.finished_at = now()
    record.gates = judge_run(directory, record, {TOGETHER: evidence})
    record.verdict = verdict_of(record, record.gates)
    directory.save(record, {TOGETHER: evidence})
    return directory


def _keep(directory: RunDirectory, node: str, content: bytes) -> KeptLog:
    from shakedown.common.text import file_name

    path = f"logs/{file_name(node)}/leader.log"
    log = LogFile("leader.log", directory.path / path, LogQuota())
    log.write(content)
    log.size = len(content)
    return log.close().model_copy(update={"path": path})


def contents(archive: Path) -> dict[str, bytes]:
    """Every member's bytes by its name."""
    with tarfile.open(archive) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member))}


def manifest_of(members: dict[str, bytes], **changes: Any) -> bytes:
    """A manifest that is right for these members."""
    listed = [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in members.items()
    ]
    document = {"schema_version": 1, "shakedown": "1", "run_id": "one", "verdict": "ok", "members": listed}
    return json.dumps(document | changes).encode()


def packed(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], tail: bytes = b"") -> Path:
    """An archive of exactly these headers."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for header, data in members:
            tar.addfile(header, io.BytesIO(data))
    path.write_bytes(gzip.compress(raw.getvalue() + tail))
    return path


def member(name: str, data: bytes = b"", **changes: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A header, and what follows it."""
    header = tarfile.TarInfo(name)
    header.size = len(data)
    for key, value in changes.items():
        setattr(header, key, value)
    return header, data
