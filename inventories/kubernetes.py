"""The MI300X nodes of a Kubernetes cluster that are free now: an example to copy.

Those that are not ready, cordoned, tainted or have a job are left out, and named with the reason. Run it where a
kubeconfig leads to the cluster; the rights that it needs are in docs/kubernetes.md.
"""

from shakedown.hosts import kubernetes

mi300x = (
    kubernetes("amd.com/gpu.product-name=AMD_Instinct_MI300X_OAM"),
    {
        "ssh_user": "root",
        "gpu": "mi300x",
        "nic": "thor2",
        "images": {"megatron": "rocm/megatron-lm:v25.5_py310"},
        "smoke": {"recipe": "llama3.1-8b-fp8", "image": "megatron"},
    },
)
