"""The steps of a plan: each derives its part, tells why, and notes what is wrong without stopping the others."""

from __future__ import annotations

from collections.abc import Sequence

from shakedown.desired.home import HOME
from shakedown.desired.models import EACH
from shakedown.smoke.options import Chosen, environment_problems
from shakedown.smoke.plan import cache, image, memory, network, rccl
from shakedown.smoke.plan.batch import Split, split
from shakedown.smoke.plan.devices import container_devices
from shakedown.smoke.plan.draft import Draft
from shakedown.smoke.plan.provider import host_files
from shakedown.smoke.plan.rdma import Hcas, find_hcas
from shakedown.smoke.program import gated, of_image
from shakedown.smoke.runtimes import Equipment, Job, Seat
from shakedown.smoke.runtimes.container import refuses_shm_size
from shakedown.smoke.runtimes.job import environment as environment_of
from shakedown.smoke.runtimes.job import wanted
from shakedown.smoke.token import TOKEN, where_from


def node_count(draft: Draft) -> None:
    """Where the program ends, and for how many nodes the recipe was documented."""
    count, limits, described = len(draft.states), draft.recipe.family.limits, draft.recipe.entry.nodes
    if limits and limits.max_nodes is not None and count > limits.max_nodes:
        draft.refuse("plan", "nodes", count, f"at most {limits.max_nodes} with {draft.recipe.name}: {limits.why}")
    elif draft.alone and draft.recipe.not_alone:
        draft.refuse("smoke", "smoke.scope", EACH, draft.recipe.not_alone)
    elif described not in (None, count):
        draft.tell("nodes", count, f"{draft.recipe.document} describes {draft.recipe.name} for {described}")


def supported_gpus(draft: Draft) -> None:
    """GPU models that the program was made for."""
    limits = draft.recipe.family.limits
    if limits is None or not limits.gpus:
        return
    for name, desired in draft.desired.items():
        model = desired.gpu.profile
        if model in limits.partial_gpus:
            draft.tell(f"{name}: warning", model, f"supported in part: {limits.why}")
        elif model not in limits.gpus:
            expected = (
                f"one of {', '.join([*limits.gpus, *limits.partial_gpus])} with {draft.recipe.name}: {limits.why}"
            )
            draft.refuse(name, "gpu.profile", model, expected)


def division(draft: Draft, chosen: Chosen, ranks: int) -> Split | None:
    """Parallel sizes, batches and the room for them."""
    nodes = len(draft.states)
    sizes, problems = split(chosen, nodes * ranks)
    draft.problems += problems
    if sizes is None or problems:
        return None
    draft.tell("world size", sizes.world_size, f"{_count(nodes, 'node')} x {_count(ranks, 'rank')}")
    parts = f"tensor {sizes.tensor} x pipeline {sizes.pipeline} x context {sizes.context}"
    draft.tell("data parallel", sizes.data, f"world size / ({parts})")
    batch = f"global batch {sizes.global_batch} / (micro batch {sizes.micro_batch} x data parallel {sizes.data})"
    draft.tell("micro batches", sizes.micro_batches, batch)
    if sizes.tensor > ranks:
        draft.tell(
            "tensor parallel", sizes.tensor, f"more than the {ranks} ranks of a node: layers wait for the network"
        )
    for name, state in draft.states.items():
        draft.add(*memory.room(name, chosen, sizes, ranks, draft.desired[name], state))
    return sizes


def meeting(draft: Draft) -> network.Meeting | None:
    """Master address, and every node's interface."""
    found, problems = network.meet(draft.states, draft.smoke.interface)
    draft.problems += problems
    if found is None:
        return None
    place = found.places[draft.master]
    draft.tell("master address", place.address, f"{draft.master}, {place.interface}: {found.why}")
    way = "as the desired state says" if draft.smoke.interface else "the one that routes to the master"
    for name, place in found.places.items():
        if name != draft.master:
            draft.tell(f"{name}: interface", f"{place.interface} {place.address}", way)
    return found


def master_port(draft: Draft) -> int | None:
    """A free one on the master."""
    asked = draft.smoke.master_port
    try:
        port, why = network.free_port(draft.states[draft.master], draft.run_id, asked)
    except ValueError as error:
        path = "listening" if asked is None else "smoke.master_port"
        draft.refuse(draft.master, path, asked or "unknown", str(error))
        return None
    draft.tell("master port", port, why)
    return port


def hcas(draft: Draft) -> dict[str, Hcas]:
    """Only for a job that spans nodes: on one node what is missing is a finding, and no reason not to train."""
    if not draft.is_distributed:
        return {name: Hcas() for name in draft.states}
    found = {name: find_hcas(name, draft.desired[name].rdma, state) for name, state in draft.states.items()}
    for name, each in found.items():
        draft.problems += each.problems
        draft.tell(f"{name}: HCA list", ",".join(each.names) or "none", each.why)
        if each.gid_index is not None:
            draft.tell(f"{name}: GID index", each.gid_index, "the RoCE v2 entry of each device's own IPv4 address")
    return found


def equipment(draft: Draft, chosen: Chosen) -> tuple[str | None, dict[str, Equipment]]:
    """Runtime container: the pinned image, and what each node's container gets of the host."""
    documented = draft.recipe.family.container
    reference, told, problems = image.pin(draft.recipe, draft.desired[draft.master], draft.states)
    draft.add(told, problems)
    if documented.privileged and not draft.smoke.privileged:
        draft.tell("privileged", "no", f"{draft.recipe.document} has it, smoke.privileged does not ask for it")
    found = {name: _equipment(draft, name) for name in draft.states}
    if draft.is_distributed:
        draft.add(*cache.shared(chosen, draft.desired, draft.states))
    elif draft.alone:
        draft.derived += cache.of_one(draft.master, chosen, draft.desired[draft.master], draft.states[draft.master])
    return reference, found


def _equipment(draft: Draft, name: str) -> Equipment:
    own, state = draft.desired[name], draft.states[name]
    documented = draft.recipe.family.container
    devices, left_out, problems = container_devices(name, documented, own.smoke or draft.smoke, state)
    draft.problems += problems
    volumes = {**documented.volumes, **(own.smoke or draft.smoke).volumes}
    if state.account.home is None and any(HOME in path for pair in volumes.items() for path in pair):
        expected = f"a home folder of {state.account.user} in /etc/passwd, or volumes without {HOME}"
        draft.refuse(name, "account.home", "nothing", expected)
    for device in left_out:
        draft.tell(f"{name}: {device}", "left out", "the node has none")
    if state.containers.engine == "podman" and refuses_shm_size("podman", documented):
        draft.tell(f"{name}: shm size", "left out", "podman refuses it with --ipc host, where /dev/shm is the host's")
    if not (draft.is_distributed and own.rdma.count):
        return Equipment(devices)
    files = host_files(name, own.rdma, state)
    draft.problems += files.problems
    if files.mounts:
        draft.tell(f"{name}: host files", ", ".join(files.mounts), files.why or "as the NIC family needs them")
    return Equipment(devices, files.mounts, files.copies)


def environment(draft: Draft, chosen: Chosen) -> None:
    """The site's own variables: none may be a derived value or an option, whose home is elsewhere."""
    family = draft.recipe.family
    wanted = {**family.environment, **draft.smoke.environment}
    for caution in family.cautions:
        hurt = [name for name, own in draft.desired.items() if own.gpu.profile in caution.gpus]
        if hurt and wanted.get(caution.variable) == caution.value:
            draft.tell(f"warning: {caution.variable}", caution.value, f"{caution.why} ({', '.join(hurt)})")
    draft.problems += environment_problems(chosen, draft.smoke)
    for name, value in draft.smoke.environment.items():
        if name.startswith(("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")):
            draft.tell(name, value, "typed by the site in smoke.environment, over the derived value")


def versions(draft: Draft, chosen: Chosen, image_reference: str | None) -> None:
    """Options that not every version of the program takes which was read, or that one of them sets itself."""
    family = draft.recipe.family
    known = of_image(family, image_reference)
    for name in chosen.given:
        option = chosen.option(name)
        if option is None or option.placed:
            continue
        word = (option.argument or name).removeprefix("--")
        without = [each for each in known if not each.takes(word, family.script)]
        own = [each for each in without if word in each.sets.get(family.script or "", [])]
        if without and name not in draft.recipe.entry.corrected:
            what = "sets it itself" if own else "has no such argument" if option.argument else "reads no such variable"
            where = ", ".join(f"{each.source} at {each.commit[:7]} ({each.date})" for each in without)
            draft.tell(f"note: {name}", chosen.given[name], f"{where} {what}")


def tokenizer(draft: Draft, chosen: Chosen, image_reference: str | None) -> bool:
    """Which tokenizer is downloaded, and whether it can be. Returns whether the job gets a token."""
    wanted, source = draft.recipe.family.tokenizer, where_from(draft.smoke.hf_token_file)
    has_token = draft.recipe.family.launch.hf_token is not None and source is not None
    if has_token:
        draft.tell(TOKEN, "(not shown)", str(source))
    asked = chosen.value(wanted.option) if wanted and wanted.option else None
    if wanted is None or str(asked or "").startswith("/"):  # a folder
        return has_token
    model = wanted.fixed.get(image_reference or "") or str(asked or wanted.model)
    if gated(model) and not has_token:
        folder = f"smoke.options.{wanted.option} as a folder of smoke.volumes" if wanted.option else "a volume with it"
        why = f"gated on Hugging Face, and there is no token: smoke.hf_token_file, {TOKEN} exported here, or {folder}"
        draft.tell("warning: tokenizer", model, why)
    return has_token


def warnings_heard(draft: Draft, job: Job, seats: Sequence[Seat]) -> None:
    """Where RCCL was asked to keep silent."""
    for seat in seats:
        for name, value, why in rccl.told(wanted(job, seat, ""), environment_of(job, seat, "")):
            draft.tell(f"{seat.name}: {name}", value, why)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
