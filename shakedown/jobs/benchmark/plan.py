"""What one node runs: MAD's scripts in the document's container."""

from importlib.resources import files

from shakedown.desired.models import Benchmark
from shakedown.jobs.launch import CONTAINER_FOLDER as FOLDER
from shakedown.jobs.launch import CONTAINER_LABEL, LaunchPlan, NodePlan, remove_containers, run_folders
from shakedown.jobs.token import TOKEN, where_from
from shakedown.node.launcher.processes import MARK
from shakedown.recipes.benchmark import document
from shakedown.recipes.recipe import Container

REPORT = "{run_dir}/logs/perf.csv"


def options(wanted: Benchmark) -> list[str]:
    """Return the options of pytorch_benchmark_report.sh."""
    words = ["-t", wanted.mode, "-m", wanted.model, "-p", wanted.precision]
    return [*words, "-s", str(wanted.seq_length)] if wanted.seq_length else words


def launch_plan(wanted: Benchmark, node: str, engine: str, image: str, run_id: str) -> LaunchPlan:
    """One node's benchmark as a job of its own. Batch sizes and iterations are 0: the program chooses them."""
    secrets = [TOKEN] if where_from(wanted.hf_token_file) else []
    name = f"shakedown-{run_id}-benchmark"
    plan = NodePlan(
        name=node,
        node_rank=0,
        ranks=0,
        address="",
        interface="",
        command=_command(wanted, engine, image, run_id, name, secrets),
        secrets=secrets,
        files={
            "benchmark.sh": (files("shakedown.jobs.benchmark") / "benchmark.sh").read_text("utf-8"),
            "setup.txt": "".join(f"{line}\n" for line in document().models[wanted.model].setup),
        },
        cleanup=[remove_containers(engine, run_id, name)],
        logs=[REPORT],
    )
    return LaunchPlan(
        run_id=run_id,
        recipe="pytorch-training",
        runtime="container",
        image=image,
        nodes=[plan],
        world_size=0,
        micro_batch=0,
        global_batch=0,
        seq_length=wanted.seq_length or 0,
        iterations=0,
        master_address="",
        master_port=0,
        start_timeout_s=wanted.timeout_s,
        stall_timeout_s=wanted.timeout_s,
        timeout_s=wanted.timeout_s,
    )


def _command(wanted: Benchmark, engine: str, image: str, run_id: str, name: str, secrets: list[str]) -> list[str]:
    data = document()
    documented = Container.model_validate(data.container)
    volumes = {wanted.checkout: "/mad:ro", **run_folders(), **documented.volumes, **wanted.volumes}
    shm_size = None if engine == "podman" else documented.shm_size  # podman refuses it with the host's IPC namespace
    given = [
        ("--name", [name]),
        ("--label", [f"{CONTAINER_LABEL}={run_id}"]),
        ("--pull", ["never"]),
        ("--network", [documented.network]),
        ("--ipc", [documented.ipc]),
        ("--device", documented.devices if wanted.devices is None else wanted.devices),
        ("--group-add", documented.groups),
        ("--cap-add", documented.capabilities),
        ("--security-opt", documented.security),
        ("--shm-size", [shm_size] if shm_size else []),
        ("--volume", [f"{host}:{to}" for host, to in volumes.items()]),
        ("--env", [*secrets, MARK]),  # names alone: the values are in the engine's own environment
    ]
    words = [word for option, values in given for value in values for word in (option, value)]
    privileged = ["--privileged"] if wanted.privileged else []
    script = [
        "bash",
        f"{FOLDER}/benchmark.sh",
        wanted.model if wanted.setup else "",
        *data.folders,
        "--",
        *options(wanted),
    ]
    return [engine, "run", *privileged, *words, "--entrypoint=", image, *script]
