"""How a node's part of the job is started: in a container, or as processes in a virtual environment.

Both take the same job and answer with a NodePlan; nothing is started here.
"""

import posixpath
import sys
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from shakedown.jobs import launch
from shakedown.jobs.launch import CONTAINER_FOLDER as FOLDER
from shakedown.jobs.launch import Need, NodePlan
from shakedown.jobs.plan.draft import NodeAssignment, PlannedJob
from shakedown.jobs.plan.environment import environment
from shakedown.node.launcher.processes import MARK
from shakedown.recipes.options import SENT
from shakedown.recipes.recipe import Container
from shakedown.state.mounts import host_path

ENV_FILE = "environment"
ARGUMENTS = "arguments"  # what job.sh appends to the command line of the script's torchrun

# The launcher and the workload take 1 MB; a job's log takes some MB, with RCCL's INFO lines tens of them.
_RUN_FOLDER_BYTES = 64 << 20

_SCRIPTS = files("shakedown.jobs.plan")
_JOB = (_SCRIPTS / "job.sh").read_text("utf-8")
_VERBS = (_SCRIPTS / "verbs.sh").read_text("utf-8")


def _container_plan(job: PlannedJob, node: NodeAssignment) -> NodePlan:
    family = job.chosen.recipe.family
    variables = environment(job, node, FOLDER)
    sent = {SENT[name]: text for name, text in job.chosen.recipe.entry.sent.items()}
    # A name alone is taken from the engine's own environment: secrets, which are so never written down, and the
    # launcher's mark, by which it recognises the container's processes.
    lines = [*(f"{name}={value}" for name, value in sorted(variables.items())), *secrets(job), MARK]
    written = {"job.sh": _JOB, ENV_FILE: "".join(f"{line}\n" for line in lines), **sent}
    arguments = job.chosen.arguments()
    if arguments and family.arguments == "torchrun":
        written[ARGUMENTS] = "".join(f"{word}\n" for word in arguments)
    copies = [word for source, target in node.equipment.copies.items() for word in ("--copy", source, target)]
    name = f"shakedown-{job.run_id}-{node.plan.node_rank}"
    plain = ["--without-torchrun"] if family.launcher in ("python", "program") else []
    command = _run(job, node, name, ["bash", f"{FOLDER}/job.sh", *plain, *copies, *program(job, node, FOLDER)])
    setup = []
    if node.plan.hca:
        written["verbs.sh"] = _VERBS
        setup.append(_run(job, node, f"{name}-verbs", ["bash", f"{FOLDER}/verbs.sh", *copies, *node.plan.hca], "--rm"))
    data = filter(None, (host_path(path, node.smoke.volumes) for _, path in job.chosen.data()))
    needs = _common_needs(job, node, [*data], port=family.container.network == "host")
    log = family.launch.log
    further = [name for part in job.chosen.conditions() for name in part.logs]
    return _node_plan(
        job,
        node,
        command,
        variables,
        files=written,
        needs=[Need(kind="image", path=node.engine, image=job.image or ""), *needs],
        setup=setup,
        cleanup=[
            launch.remove_containers(node.engine, job.run_id, f"{name}(-verbs)?"),
            launch.remove_stopped_containers(node.engine),
        ],
        logs=[f"{{run_dir}}/{name}" for name in (*([f"logs/{log}"] if log else []), *further)],
    )


def refuses_shm_size(engine: str, documented: Container) -> bool:
    """With the host's IPC namespace /dev/shm is the host's: docker then ignores the size, podman refuses to start."""
    return engine == "podman" and documented.ipc == "host"


def _run(job: PlannedJob, node: NodeAssignment, name: str, words: list[str], *more: str) -> list[str]:
    """Return the engine's command line. `--pull never`: only the pinned image that the plan was made for."""
    family, wanted = job.chosen.recipe.family, node.smoke
    documented = family.container
    shm_size = None if refuses_shm_size(node.engine, documented) else wanted.shm_size or documented.shm_size
    options = [
        ("--name", [name]),
        ("--label", [f"{launch.CONTAINER_LABEL}={job.run_id}"]),
        ("--pull", ["never"]),
        ("--network", [documented.network]),
        ("--ipc", [documented.ipc]),
        ("--device", node.equipment.devices),
        ("--group-add", documented.groups),
        ("--cap-add", documented.capabilities),
        ("--security-opt", documented.security),
        ("--ulimit", [f"{limit}={value}" for limit, value in documented.ulimits.items()]),
        ("--shm-size", [shm_size] if shm_size else []),
        # A volume's host folder is made when it is missing, as people expect; a library's must never be.
        ("--volume", [f"{host}:{to}".replace("{home}", node.home) for host, to in wanted.volumes.items()]),
        ("--mount", [f"type=bind,source={host},target={to}" for host, to in node.equipment.mounts.items()]),
        ("--volume", [f"{host}:{to}" for host, to in launch.run_folders().items()]),
        ("--workdir", [job.chosen.place(family.workdir, FOLDER)] if family.workdir else []),
        ("--env-file", [f"{{run_dir}}/{ENV_FILE}"]),
    ]
    flags = [*more, *(["--privileged"] if wanted.privileged else [])]
    given = [word for option, values in options for value in values for word in (option, value)]
    return [node.engine, "run", *flags, *given, "--entrypoint=", job.image or "", *words]


def _process_plan(job: PlannedJob, node: NodeAssignment) -> NodePlan:
    family = job.chosen.recipe.family
    # This controller's own environment is also on a node that is the same machine, or has the same layout.
    venv = node.smoke.venv or sys.prefix
    variables = environment(job, node, "{run_dir}")
    # Without it every rank starts one thread for each core, and they fight for them.
    if job.ranks:
        variables.setdefault("OMP_NUM_THREADS", str(max(1, node.state.cpu.count // job.ranks)))
    own = {"torchrun": f"{venv}/bin/torchrun", "python": f"{venv}/bin/python"}
    command = program(job, node, "{run_dir}", log_dir="{run_dir}/torchrun", **own)
    if family.workdir:
        command = ["env", f"--chdir={job.chosen.place(family.workdir, '{run_dir}')}", *command]
    return _node_plan(
        job,
        node,
        command,
        variables,
        needs=_program_needs(job, own) + _common_needs(job, node, [path for _, path in job.chosen.data()], port=True),
        cleanup=[family.cleanup] if family.cleanup else [],
        logs=[f"{{run_dir}}/logs/{family.launch.log}"] if family.launch.log else [],
    )


def _common_needs(job: PlannedJob, node: NodeAssignment, data: Sequence[str], port: bool) -> list[Need]:
    """Return what a node's part of the job needs in both runtimes. The port is the first node's."""
    listens = port and node.plan.node_rank == 0 and job.master_port
    needs = [Need(kind="data", path=path) for path in dict.fromkeys(data)]
    needs.append(Need(kind="room", size=_RUN_FOLDER_BYTES))
    return needs + ([Need(kind="port", address=job.master_address, port=job.master_port)] if listens else [])


def _program_needs(job: PlannedJob, own: dict[str, str]) -> list[Need]:
    family = job.chosen.recipe.family
    if family.launcher == "program":  # its path may begin in the working folder
        path = posixpath.join(*(job.chosen.place(word, "") for word in (family.workdir or "", "{program}")))
        return [Need(kind="program", path=path)]
    torchrun = [Need(kind="program", path=own["torchrun"])] if family.launcher == "torchrun" else []
    return [Need(kind="python", path=own["python"], modules=family.modules), *torchrun]


def _node_plan(
    job: PlannedJob, node: NodeAssignment, command: list[str], variables: dict[str, str], **more: Any
) -> NodePlan:
    """Return what both runtimes plan alike for a node, with `more` fields of its plan."""
    upload = job.chosen.recipe.family.upload
    same = {"ranks": job.ranks, "environment": variables, "secrets": secrets(job), "upload": upload}
    return node.plan.model_copy(update={**same, "command": command, **more})


def program(
    job: PlannedJob,
    node: NodeAssignment,
    run_dir: str,
    torchrun: str = "torchrun",
    log_dir: str | None = None,
    python: str = "python3",
) -> list[str]:
    """Return the command line inside the runtime. torchrun gets a static rendezvous: c10d's needs host names that
    resolve, and hands out ranks as nodes arrive. Without a `log_dir` it makes a folder under /tmp, which stays there
    when torchrun is killed."""
    family = job.chosen.recipe.family
    command = [job.chosen.place(word, run_dir) for word in family.command]
    arguments = job.chosen.arguments() if family.arguments == "program" else []
    if family.launcher != "torchrun":
        return [*([python] if family.launcher == "python" else []), *command, *arguments]
    return [
        torchrun,
        *("--nnodes", str(job.nodes)),
        *("--node-rank", str(node.plan.node_rank)),
        *("--nproc-per-node", str(job.ranks)),
        *("--master-addr", job.master_address),
        *("--master-port", str(job.master_port)),
        *(("--log-dir", log_dir) if log_dir else ()),
        *command,
        *arguments,
    ]


def secrets(job: PlannedJob) -> list[str]:
    """Variables whose values only the controller knows."""
    name = job.chosen.recipe.family.launch.hf_token
    return [name] if job.hf_token and name else []


RUNTIMES = {"container": _container_plan, "process": _process_plan}
