"""A host's own layers over the profiles that they name, as one document that remembers the layer of every value."""

from collections.abc import Mapping
from typing import Any

from shakedown.desired import profiles
from shakedown.desired.cvs import Imported
from shakedown.desired.layers import HostLayers, Layer, Merged, leaves, merge
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem, shown

# What a site writes at the top of its layers. `nic` chooses the NIC family, as `gpu` chooses the GPU model, and `cvs`
# names a CVS configuration file, which is one more layer below the site's own.
KEYS = (*DesiredState.model_fields, "nic", "cvs")

# Section -> the kind of the profile that it names, the key with the name, and the profile of a node that names none.
_PROFILES = {"gpu": ("gpu", "profile", "cpu"), "rdma": ("nic", "family", None)}
# Files of the controller, where {home} is the home of its own user. In any other value it is the node's.
_ON_CONTROLLER = {"hf_token_file", "password_file", "ca_file", "patches", "source"}


def merge_host(host: HostLayers, imported: Imported | None = None) -> tuple[Merged, list[Problem]]:
    """Merge a host's layers over the profiles that they name. Return also what is wrong before anything is typed."""
    problems: list[Problem] = []
    site: list[Layer] = []
    lowest = [Layer(imported.name, imported.values)] if imported is not None else []
    for layer in [*lowest, *host.layers]:
        values = {key: value for key, value in layer.values.items() if key in KEYS}
        site.append(Layer(layer.name, _substitute(_long_form(values), host.user)))

    named, unknown = _named_profiles(merge(site))
    problems += unknown
    below = [Layer("defaults", profiles.defaults()), *named]
    merged = merge([*below, *site])
    if merged.values.get("gpu") is None:  # taken back, with the profile of a lower layer: a machine without GPUs
        merged = merge([*below, *site, Layer("profile cpu", profiles.load("gpu", "cpu"))])
    problems += _placeholders(merged)
    return merged, problems


def _named_profiles(chosen: Merged) -> tuple[list[Layer], list[Problem]]:
    """Load the profiles that a site's layers name."""
    layers, problems = [], []
    for section, (kind, key, fallback) in _PROFILES.items():
        part = chosen.values.get(section)
        name = part.get(key, fallback) if isinstance(part, dict) else fallback
        if name is None or "<changeme>" in str(name):
            continue
        if isinstance(name, str) and name in profiles.names(kind):
            layers.append(Layer(f"profile {name}", profiles.load(kind, name)))
            continue
        path = f"{section}.{key}"
        expected = f"one of {', '.join(profiles.names(kind))}"
        problems.append(Problem(chosen.origin_of(path), path, repr(name), expected))
    return layers, problems


def _long_form(values: Mapping[str, Any]) -> dict[str, Any]:
    """Expand the short forms people write: gpu = "mi300x", nic = "thor2", images = {"megatron": "name:tag"}, and
    container_engine = "docker" in the section system."""
    long = {key: value for key, value in values.items() if key not in ("nic", "cvs")}
    if isinstance(long.get("gpu"), str):
        long["gpu"] = {"profile": long["gpu"]}
    if "nic" in values:
        rdma = long.get("rdma", {})
        long["rdma"] = {**rdma, "family": values["nic"]} if isinstance(rdma, Mapping) else rdma
    system = long.get("system")
    if isinstance(system, Mapping) and isinstance(name := system.get("container_engine"), str):
        long["system"] = {**system, "container_engine": {"name": name}}
    if isinstance(long.get("images"), Mapping):
        long["images"] = {
            name: {"reference": image} if isinstance(image, str) else image for name, image in long["images"].items()
        }
    return long


def _substitute(value: Any, user: str, on_controller: bool = False) -> Any:
    if isinstance(value, str):
        home = "~" if on_controller else "/root" if user == "root" else HOME
        return value.replace("{user-id}", user).replace(HOME, home)
    if isinstance(value, Mapping):
        return {
            _substitute(key, user): _substitute(item, user, key in _ON_CONTROLLER and not isinstance(item, Mapping))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_substitute(item, user, on_controller) for item in value]
    return value


def _placeholders(merged: Merged) -> list[Problem]:
    problems = []
    for path, value in leaves(merged.values):
        texts = [path, *(value if isinstance(value, list) else [value])]
        if any(isinstance(text, str) and "<changeme>" in text for text in texts):
            problems.append(Problem(merged.origin_of(path), path, shown(value), "a value in place of <changeme>"))
    return problems


HOME = "{home}"


def at_home(desired: DesiredState, home: str | None) -> DesiredState:
    """Return the desired state with the node's own home folder, unchanged where it needs none or none is known."""
    if home is None or HOME not in desired.model_dump_json():
        return desired
    return DesiredState.model_validate(replaced(desired.model_dump(), HOME, home))


def replaced(value: Any, word: str, by: str) -> Any:
    """Return a document with a word replaced in all its texts and keys."""
    if isinstance(value, str):
        return value.replace(word, by)
    if isinstance(value, Mapping):
        return {replaced(key, word, by): replaced(item, word, by) for key, item in value.items()}
    return [replaced(item, word, by) for item in value] if isinstance(value, list) else value
