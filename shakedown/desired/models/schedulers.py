"""Schedulers that own nodes, and the ways to start a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator

from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Positive
from shakedown.desired.names import MountPath, Text, Word
from shakedown.schedulers import registry as schedulers

if TYPE_CHECKING:
    SchedulerName = str
    JobVia = str
else:
    SchedulerName = Literal[schedulers.names()]
    JobVia = Literal[("ssh", *schedulers.names())]
# Slurm's own directives must not be undone: which nodes, and all of them for us alone.
_OURS_OF_SBATCH = {"nodelist", "nodes", "exclude", "ntasks", "ntasks-per-node", "wrap", "array", "output", "error"}
_OURS_OF_SBATCH |= {"job-name", "parsable", "export", "wait", "chdir"}


def _option(text: str) -> str:
    if not re.fullmatch(r"--[a-z][a-z-]{1,40}(=[^\x00-\x1f]{0,400})?", text):
        raise ValueError('a long option of sbatch with its value behind "=", as "--qos=high"')
    if text[2:].split("=")[0] in _OURS_OF_SBATCH:
        raise ValueError("another option: this one is set for every job")
    return text


Option = Annotated[str, AfterValidator(_option)]


class Slurm(Section):
    """Slurm, where it owns the nodes: with what jobs are submitted there, and what of its nodes may be touched."""

    node: Text | None = key(None, "the node's name in Slurm; None: its name in the inventory", "node01")
    connect: Literal["ssh", "slurm"] = key(
        "ssh",
        "how the node is reached at all: over SSH, or within an allocation that lasts as long as the run",
        "slurm",
    )
    allow_allocated: bool = key(
        False, "change nodes on which another user's job runs; otherwise such a node is left as it is, and fails", True
    )
    partition: Word | None = key(None, "partition of the jobs; None: the cluster's default", "mi300x")
    reservation: Word | None = key(None, "reservation that the jobs run in", "maintenance")
    account: Word | None = key(None, "account that the jobs are charged to; None: the user's default", "bringup")
    time_min: Positive | None = key(
        None, "time limit of a job over all that runs in it; None: the partition's default", 120, unit="min"
    )
    queue_s: Positive = key(3600, "time that a job may wait in the queue until it is cancelled", 3600, unit="s")
    gres: Text | None = key(
        None,
        "generic resources of each node; None: all GPUs that Slurm has there, of the node with the fewest",
        "gpu:8",
    )
    options: list[Option] = key([], "further options of sbatch", ["--qos=high"])


class Kubernetes(Section):
    """Kubernetes, where it owns the nodes."""

    context: Text | None = key(
        None, "a context of the kubeconfig; None: its current one, or the account of the pod that this runs in", "rack7"
    )
    node: Text | None = key(None, "the node's name in the cluster; None: its name in the inventory", "node01")
    namespace: Text = key("default", "namespace of the pods that jobs run in", "bringup")
    image: Text | None = key(
        None, "image of these pods, with the job's environment in it (runtime process)", "registry.site/megatron:v25.5"
    )
    gpu_resource: Text = key("amd.com/gpu", "resource by which the pods ask for all GPUs of their node", "amd.com/gpu")
    service_account: Text | None = key(None, "service account of the pods", "bringup")
    mounts: dict[MountPath, Text] = key(
        {}, "folders of the node in the pods: host path -> path in the pod, :ro behind it", {"/srv/data": "/data:ro"}
    )
    queue_s: Positive = key(3600, "time that the pods may take to begin until they are deleted", 3600, unit="s")
