"""Runtime `container`: docker or podman, with the options that the recipe's document gives."""

from __future__ import annotations

from importlib.resources import files

from shakedown.smoke import removal
from shakedown.smoke.launch import CONTAINER_FOLDER as FOLDER
from shakedown.smoke.launch import CONTAINER_LABEL, NodePlan, run_folders
from shakedown.smoke.launcher.processes import MARK
from shakedown.smoke.recipe import Container
from shakedown.smoke.runtimes.job import Job, Seat, environment, program, secrets

ENV_FILE = "environment"
ARGUMENTS = "arguments"  # what job.sh appends to the command line of the script's torchrun

_SCRIPTS = files("shakedown.smoke.runtimes")
_JOB = (_SCRIPTS / "job.sh").read_text("utf-8")
_VERBS = (_SCRIPTS / "verbs.sh").read_text("utf-8")


def node_plan(job: Job, seat: Seat) -> NodePlan:
    """One node's ranks in one container."""
    family = job.chosen.recipe.family
    variables = environment(job, seat, FOLDER)
    written = {"job.sh": _JOB, ENV_FILE: _env_file(variables, secrets(job))}
    arguments = job.chosen.arguments()
    if arguments and family.arguments == "torchrun":
        written[ARGUMENTS] = "".join(f"{word}\n" for word in arguments)
    copies = [word for source, target in seat.equipment.copies.items() for word in ("--copy", source, target)]
    name = f"shakedown-{job.run_id}-{seat.node_rank}"
    command = _run(job, seat, name, ["bash", f"{FOLDER}/job.sh", *copies, *program(job, seat, FOLDER)])
    setup = []
    if job.nodes > 1 and seat.hca:
        written["verbs.sh"] = _VERBS
        setup.append(_run(job, seat, f"{name}-verbs", ["bash", f"{FOLDER}/verbs.sh", *copies, *seat.hca], "--rm"))
    log = family.launch.log
    further = [name for part in job.chosen.conditions() for name in part.logs]
    return NodePlan(
        name=seat.name,
        node_rank=seat.node_rank,
        ranks=job.ranks,
        address=seat.address,
        interface=seat.interface,
        hca=seat.hca,
        gid_index=seat.gid_index,
        command=command,
        environment=variables,
        secrets=secrets(job),
        files=written,
        upload=family.upload,
        setup=setup,
        cleanup=[removal.of_run(seat.engine, job.run_id, f"{name}(-verbs)?"), removal.of_earlier_runs(seat.engine)],
        logs=[f"{{run_dir}}/{name}" for name in (*([f"logs/{log}"] if log else []), *further)],
    )


def refuses_shm_size(engine: str, documented: Container) -> bool:
    """With the host's IPC namespace /dev/shm is the host's: docker then ignores the size, podman refuses to start."""
    return engine == "podman" and documented.ipc == "host"


def _run(job: Job, seat: Seat, name: str, words: list[str], *more: str) -> list[str]:
    """The engine's command line. `--pull never`: nothing but the pinned image that the plan was made for."""
    family, wanted = job.chosen.recipe.family, seat.smoke
    documented = family.container
    volumes = {
        host.replace("{home}", seat.home): to.replace("{home}", seat.home) for host, to in documented.volumes.items()
    }
    volumes |= wanted.volumes
    shm_size = None if refuses_shm_size(seat.engine, documented) else wanted.shm_size or documented.shm_size
    options = [
        ("--name", [name]),
        ("--label", [f"{CONTAINER_LABEL}={job.run_id}"]),
        ("--pull", ["never"]),
        ("--network", [documented.network]),
        ("--ipc", [documented.ipc]),
        ("--device", seat.equipment.devices),
        ("--group-add", documented.groups),
        ("--cap-add", documented.capabilities),
        ("--security-opt", documented.security),
        ("--ulimit", [f"{limit}={value}" for limit, value in documented.ulimits.items()]),
        ("--shm-size", [shm_size] if shm_size else []),
        # A volume's host folder is made when it is missing, as people expect; a library's must never be.
        ("--volume", [f"{host}:{to}".replace("{home}", seat.home) for host, to in volumes.items()]),
        ("--mount", [f"type=bind,source={host},target={to}" for host, to in seat.equipment.mounts.items()]),
        ("--volume", [f"{host}:{to}" for host, to in run_folders().items()]),
        ("--workdir", [job.chosen.place(family.workdir, FOLDER)] if family.workdir else []),
        ("--env-file", [f"{{run_dir}}/{ENV_FILE}"]),
    ]
    flags = [*more, *(["--privileged"] if wanted.privileged else [])]
    given = [word for option, values in options for value in values for word in (option, value)]
    return [seat.engine, "run", *flags, *given, "--entrypoint=", job.image or "", *words]


def _env_file(variables: dict[str, str], passed: list[str]) -> str:
    """A name alone is taken from the engine's own environment: secrets are never written down. The launcher's mark
    goes the same way, so that it knows the container's processes for the run's."""
    lines = [f"{name}={value}\n" for name, value in sorted(variables.items())]
    return "".join([*lines, *(f"{name}\n" for name in (*passed, MARK))])
