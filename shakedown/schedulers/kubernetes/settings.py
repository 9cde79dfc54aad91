"""The section `kubernetes` of the desired state."""

from shakedown.common.section import MountPath, Positive, Section, Text


class Settings(Section):
    """Kubernetes, where it owns the nodes."""

    context: Text | None = None
    node: Text | None = None
    namespace: Text = "default"
    image: Text | None = None
    gpu_resource: Text = "amd.com/gpu"
    service_account: Text | None = None
    mounts: dict[MountPath, Text] = {}
    queue_s: Positive = 3600
