"""What a node's container gets of the host: the pinned image, devices, provider library, shared data cache."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from shakedown.desired.hca import files_naming, libraries_of, library_of, with_abi
from shakedown.desired.models import Smoke
from shakedown.desired.resolve import HOME
from shakedown.jobs.plan.draft import Equipment, PlanDraft
from shakedown.jobs.plan.runtimes import refuses_shm_size
from shakedown.recipes.options import ResolvedOptions
from shakedown.state.images import Reference, digests_of, held, long_name, parse, same
from shakedown.state.mounts import file_system, host_path
from shakedown.state.node import DeviceNode, Image, NodeState, Reading, Unreadable, is_unreadable


def equip(draft: PlanDraft, chosen: ResolvedOptions) -> tuple[str, dict[str, Equipment]]:
    """Runtime container: the pinned image, and what each node's container gets of the host."""
    reference = pin_image(draft)
    if draft.recipe.family.container.privileged and not draft.smoke.privileged:
        draft.note("privileged", "no", f"{draft.recipe.document} has it, smoke.privileged does not ask for it")
    equipment = {name: _equipment(draft, name) for name in draft.states}
    if draft.is_distributed:
        note_shared_cache(draft, chosen)
    elif draft.alone:
        _warn_of_cache(draft, chosen)
    return reference, equipment


def pin_image(draft: PlanDraft) -> str:
    """Return the reference to start, with the digest that the nodes report for it."""
    documented = draft.recipe.family.container.image
    assert draft.smoke.image is not None
    text = draft.desired[draft.master].images[draft.smoke.image].reference
    wanted = parse(text)
    if documented and parse(documented).name != wanted.name:
        draft.note("image", text, f"the document uses {documented}")
    images_by_node: dict[str, Image] = {}
    names: dict[str, None] = {}
    for name, state in draft.states.items():
        store, engine = state.containers.images, state.containers.engine
        if is_unreadable(store):
            draft.refuse(name, "containers.images", store, "the images of a container engine")
            continue
        names |= dict.fromkeys(wanted.names(engine))
        if images := held(store, wanted, engine):
            images_by_node[name] = images[0]
    if len(set(same(images_by_node, list(names)).values())) > 1:
        digests = {name: digests_of(image, list(names)) or [image.id] for name, image in images_by_node.items()}
        shown = ", ".join(f"{name}: {', '.join(found)}" for name, found in digests.items())
        draft.refuse("plan", "image", shown, f"the same {text} on every node")
    pinned = _common(wanted, list(images_by_node.values()), list(names)) or text
    absent = [name for name in draft.states if name not in images_by_node]
    there = f"not there yet on {', '.join(absent)}: pull it first" if absent else "what every node holds"
    draft.note("image", pinned, there)
    return pinned


def _common(wanted: Reference, images: list[Image], names: list[str]) -> str | None:
    """Return what every node starts this very image by: a registry digest that all hold it under, else its id. Of a
    name with and without its registry it takes the one with it, which podman needs and docker takes."""
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


def _equipment(draft: PlanDraft, name: str) -> Equipment:
    own, state, documented = draft.desired[name], draft.states[name], draft.recipe.family.container
    smoke = own.smoke or draft.smoke
    devices, left_out = _devices(draft, name, smoke)
    if state.account.home is None and any(HOME in path for pair in smoke.volumes.items() for path in pair):
        expected = f"a home folder of {state.account.user} in /etc/passwd, or volumes without {HOME}"
        draft.refuse(name, "account.home", "nothing", expected)
    for device in left_out:
        draft.note(f"{name}: {device}", "left out", "the node has none")
    if state.containers.engine == "podman" and refuses_shm_size("podman", documented):
        draft.note(f"{name}: shm size", "left out", "podman refuses it with --ipc host, where /dev/shm is the host's")
    mounts, copies = host_files(draft, name) if draft.is_distributed and own.rdma.count else ({}, {})
    return Equipment(devices, mounts, copies)


def _devices(draft: PlanDraft, name: str, smoke: Smoke) -> tuple[list[str], list[str]]:
    """Return the devices to give, and the optional ones that the node lacks. Refuse requested ones that it lacks."""
    documented, state = draft.recipe.family.container, draft.states[name]
    wanted = documented.devices if smoke.devices is None else smoke.devices
    for path in wanted:
        if absent := _absent(path, state):
            draft.refuse(name, f"devices ({path})", absent, "the device, or smoke.devices without it")
    optional = documented.optional_devices if smoke.devices is None else []
    left_out = [path for path in optional if _absent(path, state)]
    return [*wanted, *(path for path in optional if path not in left_out)], left_out


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


def host_files(draft: PlanDraft, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return what this node's containers get: mounts (host path -> container path), and copies of paths in the
    container, made before the job starts. Families that the image's own rdma-core serves get nothing."""
    wanted, verbs, provider = draft.desired[name].rdma, draft.states[name].verbs, draft.desired[name].rdma.provider
    mounts, copies, reason = dict(wanted.mounts), dict[str, str](), ""
    library = library_of(provider, verbs) if provider else None
    if provider is None or provider.host_library is None or provider.container_library is None:
        pass
    elif library is None:
        others = ", ".join(library.path for library in libraries_of(provider, verbs)) or "nothing"
        expected = f"{provider.host_library}, of libibverbs' own ABI ({verbs.abi})"
        draft.refuse(name, f"verbs.providers ({provider.name})", others, expected)
    else:
        target = with_abi(provider.container_library, library.abi)
        mounts[library.path] = target
        if provider.install_as:
            copies[target] = with_abi(provider.install_as, library.abi)
        of = f"the provider of {wanted.family or provider.name}, ABI {library.abi}"
        reason = f"{of}; host and container must have the very same file"
        named = {str(PurePosixPath(file).parent) for file in files_naming(provider, verbs)}
        folder = next((folder for folder in provider.config_dirs if folder in named), None)
        if folder is None:
            expected = f"a file in {' or '.join(provider.config_dirs)} that names {provider.name}"
            draft.refuse(name, "verbs.drivers", ", ".join(verbs.drivers) or "nothing", expected)
        else:
            mounts[folder] = folder
    if mounts:
        draft.note(f"{name}: host files", ", ".join(mounts), reason or "as the NIC family needs them")
    return mounts, copies


def note_shared_cache(draft: PlanDraft, chosen: ResolvedOptions) -> None:
    """Global rank 0 writes the index cache and every rank reads it. Mock data needs none."""
    launch = chosen.recipe.family.launch
    if launch.cache_dir is None:
        return
    if not chosen.matches(launch.real_data):
        draft.note(launch.cache_dir, "not shared", "mock data needs no cache that all nodes see")
        return
    inside, path = str(chosen.value(launch.cache_dir)), f"smoke.options.{launch.cache_dir}"
    disks = {}
    for name, state in draft.states.items():
        smoke = draft.desired[name].smoke
        host = host_path(inside, smoke.volumes if smoke else {})
        disk = None if host is None or is_unreadable(state.disks) else file_system(host, state.disks)
        if host is None:
            draft.refuse("smoke", path, inside, "a folder below one of smoke.volumes")
        elif disk is None or not disk.network:
            actual = f"{host} on {f'{disk.device} ({disk.fstype})' if disk else 'an unknown file system'}"
            draft.refuse(name, path, actual, "a file system that every node sees, such as NFS")
        else:
            disks[name] = disk.device
    if len(set(disks.values())) > 1:
        shown = ", ".join(f"{name}: {device}" for name, device in disks.items())
        draft.refuse("plan", path, shown, "the same file system on every node")
    elif len(disks) == len(draft.states):
        draft.note(launch.cache_dir, inside, f"every node has {next(iter(disks.values()))} there")


def _warn_of_cache(draft: PlanDraft, chosen: ResolvedOptions) -> None:
    """Warn where nodes that train alone write the same index at the same time, on a network file system."""
    folder, disks = cache_folder(chosen, draft.smoke.volumes), draft.states[draft.master].disks
    disk = None if folder is None or is_unreadable(disks) else file_system(folder, disks)
    if disk is not None and disk.network:
        reason = "every node writes the same index there, at the same time: give each a folder of its own with the"
        reason += " host's smoke.volumes, or let one run fill it before"
        draft.note(f"{draft.master}: warning", f"{folder} is on {disk.device}", reason)


def cache_folder(chosen: ResolvedOptions, volumes: Mapping[str, str]) -> str | None:
    """Where the cache of a run with real data lies on a node; None where the run needs none, or has it in no volume."""
    launch = chosen.recipe.family.launch
    if launch.cache_dir is None:
        return None
    return host_path(str(chosen.value(launch.cache_dir)), volumes) if chosen.matches(launch.real_data) else None
