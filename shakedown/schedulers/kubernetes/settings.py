"""The section `kubernetes` of the desired state."""

from shakedown.common.section import MountPath, Positive, Section, Text, key


class Settings(Section):
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
