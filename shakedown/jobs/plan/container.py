"""What a node's container gets of the host: the pinned image, devices, provider library, shared data cache."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from shakedown.desired.hca import files_naming, libraries_of, library_of, with_abi
from shakedown.desired.merging import HOME
from shakedown.desired.models import DesiredState, Rdma, Smoke
from shakedown.desired.problems import Problem
from shakedown.jobs.launch import Derived
from shakedown.jobs.plan.draft import Equipment, PlanDraft
from shakedown.jobs.plan.runtimes import refuses_shm_size
from shakedown.recipes.options import ResolvedOptions
from shakedown.recipes.recipe import Container, Recipe
from shakedown.state.images import Reference, digests_of, held, long_name, parse, same
from shakedown.state.mounts import file_system, host_path
from shakedown.state.node import DeviceNode, Image, NodeState, Reading, Unreadable, is_unreadable


def pin_image(
    recipe: Recipe, desired: DesiredState, states: Mapping[str, NodeState]
) -> tuple[str | None, list[Derived], list[Problem]]:
    """Return the reference to start, with the digest that the nodes report for it."""
    documented = recipe.family.container.image
    if desired.smoke is None or desired.smoke.image is None:
        expected = f"the name of an image in images{f' (documented: {documented})' if documented else ''}"
        return None, [], [Problem("smoke", "smoke.image", "nothing", expected)]
    text = desired.images[desired.smoke.image].reference
    wanted, derived, problems = parse(text), [], []
    if documented and parse(documented).name != wanted.name:
        derived.append(Derived(name="image", value=text, why=f"the document uses {documented}"))
    images_by_node: dict[str, Image] = {}
    names: dict[str, None] = {}
    for name, state in states.items():
        store, engine = state.containers.images, state.containers.engine
        if is_unreadable(store):
            problems.append(Problem(name, "containers.images", str(store), "the images of a container engine"))
            continue
        names |= dict.fromkeys(wanted.names(engine))
        if images := held(store, wanted, engine):
            images_by_node[name] = images[0]
    if len(set(same(images_by_node, list(names)).values())) > 1:
        shown = ", ".join(f"{name}: {_pinned(image, list(names))}" for name, image in images_by_node.items())
        problems.append(Problem("plan", "image", shown, f"the same {text} on every node"))
    pinned = _common(wanted, list(images_by_node.values()), list(names)) or text
    absent = [name for name in states if name not in images_by_node]
    if absent:
        derived.append(Derived(name="image", value=pinned, why=f"not there yet on {', '.join(absent)}: pull it first"))
    else:
        derived.append(Derived(name="image", value=pinned, why="what every node holds"))
    return pinned, derived, problems


def _common(wanted: Reference, images: list[Image], names: list[str]) -> str | None:
    """Return what every node starts this very image by: a registry digest that all hold it under, else its id.

    Of a name with and without its registry it takes the one with it, which podman needs and docker takes.
    """
    if not images:
        return None
    every = [{_plain(entry): entry for entry in image.digests if _plain(entry)[0] in names} for image in images]
    common = sorted(set.intersection(*(set(keys) for keys in every)), key=lambda key: (key[1] != wanted.digest, key))
    if common:
        return max((keys[common[0]] for keys in every), key=len)
    return images[0].id


def _plain(entry: str) -> tuple[str, str]:
    name, _, digest = entry.partition("@")
    return long_name(name), digest


def _pinned(image: Image, names: list[str]) -> str:
    return ", ".join(digests_of(image, names)) or image.id


def container_devices(
    name: str, documented: Container, smoke: Smoke, state: NodeState
) -> tuple[list[str], list[str], list[Problem]]:
    """Return the devices to give, the optional ones that the node lacks, and the requested ones that are not there."""
    wanted = documented.devices if smoke.devices is None else smoke.devices
    problems = []
    for path in wanted:
        absent = _absent(path, state)
        if absent:
            problems.append(Problem(name, f"devices ({path})", absent, "the device, or smoke.devices without it"))
    optional = documented.optional_devices if smoke.devices is None else []
    left_out = [path for path in optional if _absent(path, state)]
    return [*wanted, *(path for path in optional if path not in left_out)], left_out, problems


def _absent(path: str, state: NodeState) -> str | None:
    """Return why a device is not there; None where it is, or where the node state lacks the answer."""
    devices = state.devices
    if path == "/dev/kfd":
        return str(devices.kfd) if is_unreadable(devices.kfd) else None
    folders: dict[str, Reading[list[DeviceNode]]] = {"/dev/dri": devices.dri, "/dev/infiniband": devices.infiniband}
    for folder, listing in folders.items():
        if path != folder and not path.startswith(f"{folder}/"):
            continue
        if isinstance(listing, Unreadable):
            return str(listing)
        there = [entry.path for entry in listing]
        return None if path in there or (path == folder and there) else "not there"
    return None


@dataclass
class HostFiles:
    """`mounts`: host path -> container path. `copies`: paths in the container, copied before the job starts."""

    mounts: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    why: str = ""
    problems: list[Problem] = field(default_factory=list)


def host_files(name: str, wanted: Rdma, state: NodeState) -> HostFiles:
    """Return what this node's containers get. Families that the image's own rdma-core serves get nothing."""
    files = HostFiles(mounts=dict(wanted.mounts))
    provider = wanted.provider
    if provider is None or provider.host_library is None or provider.container_library is None:
        return files
    library = library_of(provider, state.verbs)
    if library is None:
        others = ", ".join(library.path for library in libraries_of(provider, state.verbs)) or "nothing"
        expected = f"{provider.host_library}, of libibverbs' own ABI ({state.verbs.abi})"
        files.problems.append(Problem(name, f"verbs.providers ({provider.name})", others, expected))
        return files
    target = with_abi(provider.container_library, library.abi)
    files.mounts[library.path] = target
    if provider.install_as:
        files.copies[target] = with_abi(provider.install_as, library.abi)
    of = f"the provider of {wanted.family or provider.name}, ABI {library.abi}"
    files.why = f"{of}; host and container must have the very same file"
    named = {str(PurePosixPath(file).parent) for file in files_naming(provider, state.verbs)}
    folder = next((folder for folder in provider.config_dirs if folder in named), None)
    if folder is None:
        expected = f"a file in {' or '.join(provider.config_dirs)} that names {provider.name}"
        actual = ", ".join(state.verbs.drivers) or "nothing"
        files.problems.append(Problem(name, "verbs.drivers", actual, expected))
    else:
        files.mounts[folder] = folder
    return files


def shared_cache(
    chosen: ResolvedOptions, desired: Mapping[str, DesiredState], states: Mapping[str, NodeState]
) -> tuple[list[Derived], list[Problem]]:
    """Global rank 0 writes the index cache and every rank reads it. Mock data needs none."""
    launch = chosen.recipe.family.launch
    option = launch.cache_dir
    if option is None:
        return [], []
    if not chosen.matches(launch.real_data):
        return [Derived(name=option, value="not shared", why="mock data needs no cache that all nodes see")], []
    inside = str(chosen.value(option))
    path = f"smoke.options.{option}"
    problems, disks = [], {}
    for name, state in states.items():
        smoke = desired[name].smoke
        host = host_path(inside, smoke.volumes if smoke else {})
        if host is None:
            problems.append(Problem("smoke", path, inside, "a folder below one of smoke.volumes"))
            continue
        disk = None if is_unreadable(state.disks) else file_system(host, state.disks)
        if disk is None or not disk.network:
            actual = f"{host} on {f'{disk.device} ({disk.fstype})' if disk else 'an unknown file system'}"
            problems.append(Problem(name, path, actual, "a file system that every node sees, such as NFS"))
        else:
            disks[name] = disk.device
    if len(set(disks.values())) > 1:
        shown = ", ".join(f"{name}: {device}" for name, device in disks.items())
        problems.append(Problem("plan", path, shown, "the same file system on every node"))
    if problems:
        return [], problems
    return [Derived(name=option, value=inside, why=f"every node has {next(iter(disks.values()))} there")], []


def cache_of_one(name: str, chosen: ResolvedOptions, desired: DesiredState, state: NodeState) -> list[Derived]:
    """Warn where nodes that train alone have their cache in a folder on a network file system.

    The jobs write the same index at the same time there.
    """
    folder = cache_folder(chosen, desired.smoke.volumes if desired.smoke else {})
    disk = None if folder is None or is_unreadable(state.disks) else file_system(folder, state.disks)
    if disk is None or not disk.network:
        return []
    reason = "every node writes the same index there, at the same time: give each a folder of its own with the"
    reason += " host's smoke.volumes, or let one run fill it before"
    return [Derived(name=f"{name}: warning", value=f"{folder} is on {disk.device}", why=reason)]


def cache_folder(chosen: ResolvedOptions, volumes: Mapping[str, str]) -> str | None:
    """Where the cache of a run with real data lies on a node; None where the run needs none, or has it in no volume."""
    launch = chosen.recipe.family.launch
    if launch.cache_dir is None:
        return None
    return host_path(str(chosen.value(launch.cache_dir)), volumes) if chosen.matches(launch.real_data) else None


def equip(draft: PlanDraft, chosen: ResolvedOptions) -> tuple[str | None, dict[str, Equipment]]:
    """Runtime container: the pinned image, and what each node's container gets of the host."""
    documented = draft.recipe.family.container
    reference, derived, problems = pin_image(draft.recipe, draft.desired[draft.master], draft.states)
    draft.add(derived, problems)
    if documented.privileged and not draft.smoke.privileged:
        draft.note("privileged", "no", f"{draft.recipe.document} has it, smoke.privileged does not ask for it")
    equipment = {name: _equipment(draft, name) for name in draft.states}
    if draft.is_distributed:
        draft.add(*shared_cache(chosen, draft.desired, draft.states))
    elif draft.alone:
        draft.derived += cache_of_one(draft.master, chosen, draft.desired[draft.master], draft.states[draft.master])
    return reference, equipment


def _equipment(draft: PlanDraft, name: str) -> Equipment:
    own, state = draft.desired[name], draft.states[name]
    documented = draft.recipe.family.container
    devices, left_out, problems = container_devices(name, documented, own.smoke or draft.smoke, state)
    draft.problems += problems
    volumes = {**documented.volumes, **(own.smoke or draft.smoke).volumes}
    if state.account.home is None and any(HOME in path for pair in volumes.items() for path in pair):
        expected = f"a home folder of {state.account.user} in /etc/passwd, or volumes without {HOME}"
        draft.refuse(name, "account.home", "nothing", expected)
    for device in left_out:
        draft.note(f"{name}: {device}", "left out", "the node has none")
    if state.containers.engine == "podman" and refuses_shm_size("podman", documented):
        draft.note(f"{name}: shm size", "left out", "podman refuses it with --ipc host, where /dev/shm is the host's")
    if not (draft.is_distributed and own.rdma.count):
        return Equipment(devices)
    files = host_files(name, own.rdma, state)
    draft.problems += files.problems
    if files.mounts:
        draft.note(f"{name}: host files", ", ".join(files.mounts), files.why or "as the NIC family needs them")
    return Equipment(devices, files.mounts, files.copies)
