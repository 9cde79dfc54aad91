"""What the sampler of each node has written during a job (`shakedown/node/telemetry`): read, joined to the iterations
by time, and summed up."""

# On the node, as a KeptLog names them.
SAMPLES = ".launcher/telemetry.jsonl"
KERNEL_LOG = ".launcher/kernel.log"
DEVICE_LOG = ".launcher/devices.log"
