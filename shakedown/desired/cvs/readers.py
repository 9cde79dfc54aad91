"""What takes more than a row of parameters.toml: the job itself, its network, its recipe, its volumes and devices."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

from shakedown.common.secrets import is_secret
from shakedown.desired import profiles
from shakedown.desired.cvs.document import PLACEHOLDER, Given
from shakedown.desired.cvs.figures import put_expected
from shakedown.desired.cvs.job import LayerDraft
from shakedown.desired.models import EACH, TOGETHER

CVS_GPUS, CVS_GPUS_PER_NODE = 32, 8
_CVS_NICS = {"mi355x": "ainic"}  # and thor2 for the others: ROCm/cvs, megatron.rst at 01b906e8
_PROVIDER = re.compile(r"lib(?P<name>\w+)-rdmav\d+\.so")
_NO_DEVICES = ("/dev/shm", "/dev/hugepages", "/dev/mqueue")  # file systems that are mounted below /dev
# Where distributions keep libibverbs' configuration: a NIC family's profile looks there anyway.
_USUAL_CONFIG = ("/etc/libibverbs.d", "/lib/libibverbs.d")


def read_all(draft: LayerDraft) -> None:
    """Read in the order in which the layer is read: the machine, the job, its container, what is expected."""
    draft.put("gpu", draft.chosen.gpu)
    _nic(draft)
    _topology(draft)
    _network(draft)
    _precision(draft)
    _batch(draft)
    _data(draft)
    _recipe(draft)
    _places(draft)
    _environment(draft)
    put_expected(draft)


def _nic(draft: LayerDraft) -> None:
    """Derive the NIC family that the present form does not have: from the devices' names, else as CVS does."""
    job = draft.chosen
    nodes = draft.given.get("config.nnodes")
    if nodes is not None and nodes.path == "container.env.NNODES":
        draft.notes.flag(nodes, "CVS of September 2026 stops at it, and takes the number of its hosts")
    if job.form != "present" or not job.distributed or "config.nic_type" in draft.given:
        return
    theirs = _CVS_NICS.get(job.gpu, "thor2")
    names = draft.parsed.get("config.nccl_ib_hca", [])
    usual = {family: profiles.load("nic", family)["rdma"]["usual_devices"][0] for family in profiles.names("nic")}
    fitting = [family for family, pattern in usual.items() if names and all(fnmatch(name, pattern) for name in names)]
    family = next(iter(fitting), theirs)
    draft.put("nic", family)
    reason = f"{family}, as CVS takes for {job.gpu}; a layer with another nic decides"
    if fitting:
        reason = f"{family}, from the devices' names" + (f"; CVS itself sets up {theirs}" if family != theirs else "")
    draft.notes.derive(draft.given.get("config.nccl_ib_hca", Given("nic", "nic", None)), reason)


def _topology(draft: LayerDraft) -> None:
    """Run a job of one node on every node alone, never as one job over all of them, whose figures would be others."""
    job = draft.chosen
    flag = draft.parsed.get("config.distributed_training")
    if flag is not None and flag != job.distributed:
        draft.notes.wrong(draft.given["config.distributed_training"], f"{job.distributed}, as {job.path}")
    elif flag is not None:
        draft.notes.derive(draft.given["config.distributed_training"], f"{job.path} says the same")
    if job.distributed:
        draft.put("smoke.scope", TOGETHER)
        several = Given("model_params", job.path, "several nodes")
        draft.notes.derive(several, "all nodes of the inventory train as one job")
    else:
        draft.put("smoke.scope", EACH)
        reason = "every node of the inventory runs it alone, at the same time, and is judged alone (smoke.scope)"
        draft.notes.derive(Given("model_params", job.path, "one node"), reason)


def _network(draft: LayerDraft) -> None:
    interface, gloo = draft.parsed.get("config.nccl_socket_ifname"), draft.parsed.get("config.gloo_socket_ifname")
    if gloo is not None and gloo != interface:
        draft.put("smoke.environment.GLOO_SOCKET_IFNAME", gloo)
        reason = "one name for all nodes, over each node's own; nothing checks that it is there"
        draft.notes.flag(draft.given["config.gloo_socket_ifname"], reason)
    _hcas(draft)


def _hcas(draft: LayerDraft) -> None:
    """Require the devices that the file names; which of them a job uses, and in which order, is derived."""
    both = ("config.nccl_ib_hca_list", "config.nccl_ib_hca")
    lists = [draft.parsed[name] for name in both if name in draft.parsed]
    pattern = draft.parsed.get("config.hca_id_pattern")
    if len(lists) > 1 and set(lists[0]) != set(lists[1]):
        draft.notes.wrong(draft.given[both[1]], f"the devices of {draft.given[both[0]].path}")
    elif len(lists) > 1:
        draft.notes.derive(draft.given[both[1]], f"{draft.given[both[0]].path} has the same devices")
    if lists:
        names = lists[0]
        draft.put("rdma", {"devices": names, "count": len(names)})
        if pattern:
            draft.notes.refuse(draft.given["config.hca_id_pattern"], "the devices are given by name")
    elif pattern:
        draft.put("rdma.devices", [f"{prefix}*" for prefix in pattern.split("|") if prefix])


def _precision(draft: LayerDraft) -> None:
    precision = draft.parsed.get("model.precision")
    if precision is None or draft.family is None:
        return
    meaning = draft.family.precision.get(precision.lower())
    if meaning is None:
        known = ", ".join(name.upper() for name in draft.family.precision)
        reason = draft.family.untrained.get(precision.lower(), "CVS itself trains a name that it does not know in FP8")
        draft.notes.wrong(draft.given["model.precision"], f"one of {known} ({reason})")
    else:
        draft.options |= meaning
        if precision.lower() == "te_fp16":
            reason = "16 bits; CVS itself trains this name in FP8, so that figures measured with it are FP8's"
            draft.notes.flag(draft.given["model.precision"], reason)


def _batch(draft: LayerDraft) -> None:
    """Flag a batch that CVS would change: it reads the batch of an older file as that of 32 GPUs, and scales it
    (cvs/lib/megatron_training_lib.py at dddd91430fe4). Shakedown trains what the file has."""
    batch = draft.parsed.get("model.batch_size")
    if batch is None or batch <= CVS_GPUS or batch % CVS_GPUS:
        return
    nodes = draft.parsed.get("config.nnodes") if draft.chosen.distributed else 1
    if nodes == CVS_GPUS // CVS_GPUS_PER_NODE:
        return
    theirs = f"{batch // CVS_GPUS * CVS_GPUS_PER_NODE * nodes}" if nodes else f"{batch // CVS_GPUS * 8} for each node"
    cvs = f"CVS itself takes it for {CVS_GPUS} GPUs and trains with {theirs}"
    draft.notes.flag(draft.given["model.batch_size"], f"trained as it stands; {cvs}, as did its figures")


def _data(draft: LayerDraft) -> None:
    assert draft.family is not None
    source, mock = draft.given.get("config.dataset_source"), draft.parsed.get("config.mock_data")
    option = draft.family.options.get("data")
    if source is not None and source.value == {}:
        draft.notes.derive(source, "no data set is named; the training makes its own")
    if draft.parsed.get("config.dataset_source"):
        assert source is not None
        draft.notes.wrong(source, f"nothing: no document says what it holds; the data set is smoke.options.{option}")
    if mock is False and option is not None:
        draft.options[option] = PLACEHOLDER
        asking = Given("config.dataset_source", "config.dataset_source", source.value if source else None)
        draft.notes.leave_open(asking, f"smoke.options.{option}, since mock_data is False", missing=True)


def _recipe(draft: LayerDraft) -> None:
    """Choose the recipe whose options are nearest; every option of the file is given over its own."""
    assert draft.family is not None
    precision = str(draft.parsed.get("model.precision", ""))
    draft.put("smoke.options", dict(sorted(draft.options.items())))
    deciding = {name for choice in draft.family.recipes for name in choice.when}
    if any(draft.options.get(name) == PLACEHOLDER for name in deciding) or "model.precision" not in draft.parsed:
        recipe: str | None = PLACEHOLDER
    else:
        recipe = draft.family.recipe(draft.options, draft.chosen.gpu, draft.model, precision)
    if recipe is None:
        given = draft.given.get("model.model_size", draft.chosen.model)
        size = draft.family.options.get("model_size", "")
        known = sorted({choice.when[size] for choice in draft.family.recipes if size in choice.when})
        draft.notes.wrong(given, f"one of {', '.join(map(str, known))}")
    if recipe is not None and draft.chosen.form != "sections":
        file = draft.family.file.format(gpu=draft.chosen.gpu.upper(), model=draft.model, precision=precision)
        theirs = f"; CVS trains with the image's {file}, and MI300X's where MI325X has none" if file else ""
        draft.notes.derive(draft.chosen.model, f"the recipe {recipe}{theirs}")
    image = draft.given.get("container.image")
    if image is not None and image.is_open:
        backend = "Primus" if draft.family.image else "Megatron-LM"
        draft.notes.flag(image, f"read as {backend}'s: CVS trains with Primus where the image's name has primus")
    draft.put("smoke.recipe", recipe)
    draft.put("smoke.image", "megatron")


def _places(draft: LayerDraft) -> None:
    names = {
        "sections": ("config.container_config.volume_dict", "config.container_config.device_list"),
        "sweep": ("container.runtime.args.volumes", "container.runtime.args.devices"),
    }
    volumes, devices = names.get(draft.chosen.form, names["sweep"])
    pairs, wrong = _volume_pairs(draft.parsed.get(volumes, {}))
    if not draft.parsed.get("checkpoint.enforce", draft.chosen.form == "sections"):
        for path in [path for path in pairs if PLACEHOLDER in path or PLACEHOLDER in pairs[path]]:
            exempt = Given(volumes, draft.given[volumes].path, f"{path}:{pairs.pop(path)}")
            draft.notes.refuse(exempt, "it is checkpoint_dir's, which CVS exempts while checkpoint.enforce is not true")
    layer, displaced = _sort_volumes(pairs, draft.parsed.get(devices))
    expected = {"a path on the host and one in the container": wrong, "the same path on both sides": displaced}
    for what, entries in expected.items():
        for entry in entries:
            draft.notes.wrong(Given(volumes, draft.given[volumes].path, entry), what)
    for path in [path for pair in pairs.items() for path in pair if PLACEHOLDER in path]:
        draft.notes.leave_open(Given(volumes, draft.given[volumes].path, path), "smoke.volumes")
    for section, values in layer.items():
        draft.put(section, values)
    for index, device in enumerate(draft.parsed.get(devices) or []):
        if str(device) not in layer["smoke"]["devices"]:
            covered = Given(devices, f"{draft.given[devices].path}.{index}", device)
            draft.notes.derive(covered, "its folder is given whole")
    for host in [host for host in _USUAL_CONFIG if host in pairs]:
        given = Given(volumes, draft.given[volumes].path, host)
        draft.notes.derive(given, "the NIC family's profile finds the node's own")
    family = draft.parsed.get("config.nic_type")
    mounted = draft.notes.values.get("rdma", {}).get("provider", {}).get("name")
    if family and mounted:
        own = profiles.provider_of(family)
        if mounted != own:
            given = Given(volumes, draft.given[volumes].path, f"lib{mounted}")
            draft.notes.wrong(given, f"the library of {family}, lib{own}, or none" if own else "none")


def _environment(draft: LayerDraft) -> None:
    name = "container.runtime.args.env"
    for variable, value in draft.parsed.get(name, {}).items():
        take_variable(draft, Given(f"{name}.{variable}", f"{draft.given[name].path}.{variable}", value))


def take_variable(draft: LayerDraft, given: Given) -> None:
    """Take over a variable of the container's environment."""
    variable = given.name.rpartition(".")[2]
    if is_secret(variable):
        draft.notes.wrong(given, "no secret in a file: the token is read from smoke.hf_token_file")
    elif isinstance(given.value, dict | list) or given.value is None:
        draft.notes.wrong(given, "a text")
    elif given.is_open:
        draft.put("smoke.environment", {variable: PLACEHOLDER})
        draft.notes.leave_open(given, f"smoke.environment.{variable}")
    else:
        draft.put("smoke.environment", {variable: str(given.value)})


def _volume_pairs(volumes: Mapping[str, Any] | Sequence[Any]) -> tuple[dict[str, str], list[str]]:
    """Return host -> container path (with docker's mode) of an object or a list, and what is neither."""
    if isinstance(volumes, Mapping):
        items: Iterable[tuple[str, Any]] = volumes.items()
    else:
        items = [(str(entry).partition(":")[0], str(entry).partition(":")[2]) for entry in volumes]
    pairs, wrong = {}, []
    for host, target in items:
        if host and isinstance(target, str) and target:
            pairs[host] = target
        else:
            wrong.append(f"{host}:{target}")
    return pairs, wrong


def _sort_volumes(volumes: Mapping[str, str], devices: Sequence[str] | None) -> tuple[dict[str, Any], list[str]]:
    """Return the layer's volumes and devices, and what cannot be. Mounted folders of devices become devices. Provider
    library and libibverbs.d belong to the NIC family: the name's ABI is the node's own."""
    plain: dict[str, str] = {}
    given = [str(device) for device in devices or []]
    provider: dict[str, Any] = {}
    wrong = []
    for host, target in volumes.items():
        library = _PROVIDER.fullmatch(PurePosixPath(host).name)
        if host.startswith("/dev/") and not host.startswith(_NO_DEVICES):
            given.append(host)
            wrong += [f"{host}:{target}"] if target.partition(":")[0] != host else []
        elif library:
            provider |= _provider_layer(library["name"], host, target)
        elif PurePosixPath(host).name == "libibverbs.d":
            if host not in _USUAL_CONFIG:
                provider["config_dirs"] = [host]
            wrong += [f"{host}:{target}"] if target.partition(":")[0] != host else []
        else:
            plain[host] = target
    layer: dict[str, Any] = {"rdma": {"provider": provider}} if provider else {}
    smoke: dict[str, Any] = {"volumes": plain} if plain else {}
    if given:
        unique = list(dict.fromkeys(given))
        smoke["devices"] = [name for name in unique if not any(name.startswith(f"{other}/") for other in unique)]
    return {**layer, "smoke": smoke}, wrong


def _provider_layer(name: str, host: str, target: str) -> dict[str, Any]:
    """Return a mounted library's provider; a target in .host is copied over the container's own before the job."""
    inside = re.sub(r"-rdmav\d+\.so", "-rdmav{abi}.so", target.partition(":")[0])
    provider = {
        "name": name,
        "host_library": re.sub(r"-rdmav\d+\.so", "-rdmav{abi}.so", host),
        "container_library": inside,
    }
    return provider | ({"install_as": inside.removesuffix(".host")} if inside.endswith(".host") else {})
