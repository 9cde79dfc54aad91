"""Pods for the jobs of a run, as the desired state asks for them."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.desired.models import DesiredState, Kubernetes
from shakedown.runner.jobs.slurm_connection import same
from shakedown.schedulers.kubernetes.client import Server
from shakedown.schedulers.kubernetes.pods import Pods, Wanted


def pods_of(desired: Mapping[str, DesiredState], title: str) -> Pods:
    """For jobs over these hosts. Raises ValueError where they differ in how pods are asked for, or where a pod cannot
    hold the job; KubernetesError."""
    sections = {name: each.kubernetes or Kubernetes() for name, each in desired.items()}
    for key in Kubernetes.model_fields:
        if key != "node":
            same(f"kubernetes.{key}", {name: repr(getattr(each, key)) for name, each in sections.items()})
    section = next(iter(sections.values()), Kubernetes())
    if section.image is None:
        raise ValueError(
            "kubernetes.image is needed where jobs run in pods: the pods' image, with all that the job needs"
        )
    if any(each.smoke and each.smoke.runtime != "process" for each in desired.values()):  # trials alone need no section
        raise ValueError('smoke.runtime has to be "process" where jobs run in pods: the pod is the container')
    wanted = Wanted(
        image=section.image,
        namespace=section.namespace,
        gpu_resource=section.gpu_resource,
        queue_s=section.queue_s,
        service_account=section.service_account,
        mounts=section.mounts,
    )
    names = {name: each.node or name for name, each in sections.items()}
    return Pods(Server(section.context), names, wanted, title)
