"""What pyinfra takes for something else, or passes over, in an inventory file, in the group_data beside it, and in the
keys at the top of its data: ours, pyinfra's own (ssh_user, _sudo and so on), and the site's.

pyinfra ignores a key that it does not know, and ends with a traceback for a value of a wrong type. Which keys there are
is read from pyinfra itself: the data of its connectors, and its global arguments.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from inspect import ismodule
from itertools import chain
from pathlib import Path
from typing import Any, get_type_hints

from pyinfra.api import Host, Inventory
from pyinfra.api.arguments import all_global_arguments
from pyinfra.api.connectors import get_execution_connectors
from pyinfra.api.util import raise_if_bad_type

from shakedown.common.nearest import nearest
from shakedown.common.secrets import MASK, is_secret
from shakedown.common.text import printable
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.problems import DesiredStateError, Problem, shown
from shakedown.desired.resolve import KEYS, paths_of
from shakedown.runner.pyinfra import ansible, written
from shakedown.runner.pyinfra.invocation import invocation

_HOSTS = 'a list of hosts, as ["node01", "node02"] or nodes("node[01-02]")'
_DATA = 'a dictionary, as {"gpu": "mi300x"}'
SEVERAL = frozenset("[], \n")  # in a name: it is several, or none


def groups_of(file: str) -> dict[str, Any]:
    """Run an inventory file and return its groups. Raise DesiredStateError with all that pyinfra would misread."""
    # pyinfra's command line has gevent patch the process that imports it.
    from pyinfra_cli import inventory as pyinfras

    read = written.files(file, invocation.group_data)
    if unreadable := [problem for path in read for problem in written.unreadable(path)]:
        raise DesiredStateError(unreadable)
    values: dict[str, Any] = pyinfras.exec_file(file, return_locals=True)
    public = {name: value for name, value in values.items() if name[:1] != "_"}
    at = {name: written.line_of(name, file) for name in public}
    misread = {name: list(_misread(at[name], name, value)) for name, value in public.items()}
    wrong = [*written.other_languages(file), *chain.from_iterable(misread.values())]
    usable = {name: value for name, value in values.items() if value != () and not misread.get(name)}
    groups = {name: value for name, value in usable.items() if pyinfras._is_inventory_group(name, value)}
    if not groups and not wrong:  # what may be another variable beside groups was meant as a group
        others = {name: value for name, value in public.items() if isinstance(value, str | dict | set | Iterator)}
        wrong += [Problem(at[name], name, shown(value), _HOSTS) for name, value in others.items()]
    pairs = {name: value for name, value in groups.items() if isinstance(value, tuple) and len(value) == 2}
    own = {name: data for name, (_, data) in pairs.items() if isinstance(data, dict)}
    wrong += written.replaced(own, written.files(file))  # what --group-data names is to replace others
    if wrong:
        raise DesiredStateError(wrong)
    return groups


def _misread(file: str, name: str, value: Any) -> Iterator[Problem]:
    hosts = value
    if isinstance(value, tuple):
        if len(value) != 2 or isinstance(value[1], str | tuple):
            yield Problem(file, name, shown(value), 'a list of hosts and a dictionary, as (["n1"], {"gpu": "cpu"})')
            return
        hosts, data = value
        if not isinstance(data, dict):
            yield Problem(file, f"{name}, its data", shown(data), _DATA)
        if not isinstance(hosts, list | tuple):
            yield Problem(file, f"{name}, its hosts", shown(hosts), _HOSTS)
            return
    elif not isinstance(value, list) or not any(isinstance(host, str | tuple | list) for host in value):
        return  # another variable of the file
    for host in hosts:
        host, data = host if isinstance(host, tuple) and len(host) == 2 else (host, {})
        if isinstance(host, list):
            yield Problem(file, name, shown(host), "hosts without lists among them, as [*nodes(...), *nodes(...)]")
        elif not isinstance(host, str) or not host:
            yield Problem(file, name, shown(host), "the name of a host, or a pair of the name and its data")
        elif host[0] != "@" and not SEVERAL.isdisjoint(host) and host.isprintable() and not ansible.named(host)[1]:
            bare, words = ansible.named(host)[0], ",".join(re.findall(r"[^,\s]+", host))
            several = f"one name: nodes({words!r}) makes several of it"
            yield Problem(file, name, shown(host), f"{bare!r} alone" if ansible.is_ipv6(bare) else several)
        elif expected := no_name(host):
            yield Problem(file, name, shown(host), expected)
        if not isinstance(data, dict):
            yield Problem(file, f"{name}, {host}", shown(data), _DATA)


_NO_NAME = re.compile(r"[-.]|.*\.\.|.*/|.*[^.]{64}|.{254}")


def no_name(host: str) -> str:
    """Return what is expected in place of a name that no host can have; nothing for one that is right."""
    if not host.isprintable():
        return "a name of printable characters"
    if host[:1] == "@":
        return ""
    name, others = ansible.named(host)
    if others:
        data = {ansible.NAMES[word]: value for word, value in others.items()}
        return f"the name alone, and its data beside it: {(name, data)!r}"
    wrong = _NO_NAME.match(host) or ("@" in host or (":" in host and not ansible.is_ipv6(host)))
    expected = "a host name: no /, : or @ in it, no part empty or longer than 63 characters, no - or . first"
    return expected if wrong else ""


def without_group(read: Sequence[Path], made: Inventory) -> Iterator[Problem]:
    """Yield those of the read files of group_data whose group no inventory of this folder names."""
    file = read[0] if read else Path()
    files = [path for path in read[1:] if path.stem != "all" and not made.groups.get(path.stem)]
    beside = list(file.resolve().parent.glob("*.py")) if files else []
    named = {word for path in beside for word in (path.stem, *re.findall(r"\w+", path.read_text("utf-8", "replace")))}
    groups = [group for group, hosts in made.groups.items() if hosts]
    for path in files:
        if path.stem not in named:
            near = nearest(path.stem, groups) or " or ".join(groups)
            expected = f"{near}: no inventory beside {file.name} has a group of that name"
            yield Problem(str(path), "the group", path.stem, expected)


PYINFRAS = "pyinfra's"
OWN = "site_"  # what a site's own keys begin with
_NEAR = 0.6  # "ssh_keyfile" for ssh_key
_NEAR_PRIVATE = 0.8  # "_sodo" for _sudo; a group_data file may have names of its own with an underscore before them
_FILES = ("ssh_key", "ssh_config_file")  # of the controller; pyinfra stops at a missing key, and ignores a missing file


@cache
def known_keys() -> dict[str, Any]:
    """Return every key that pyinfra reads from host data, with its type."""
    keys = {name: kind for name, kind in all_global_arguments() if name.startswith("_")}
    for connector in get_execution_connectors().values():
        keys |= get_type_hints(connector.data_cls)
    return keys


def key_problems(hosts: Mapping[str, Host], layers: Sequence[HostLayers]) -> list[Problem]:
    """Return the problems of the keys, each once for all its hosts."""
    found: dict[Problem, None] = {}
    for host in layers:
        for layer in host.layers:
            found |= dict.fromkeys(_unknown(layer))
        found |= dict.fromkeys(_unusable(hosts[host.name], host.layers))
    return list(found)


def _unknown(layer: Layer) -> Iterator[Problem]:
    """Yield the keys that nothing reads. Functions and modules of a group_data file are no data."""
    for key, value in layer.values.items():
        if (expected := _expected(key)) and not callable(value) and not ismodule(value):
            yield Problem(layer.name, key, _shown(key, value), expected)


@lru_cache(maxsize=4096)
def _expected(key: str) -> str:
    """Return what stands in place of a key, or nothing. Hosts by the thousand have the same keys."""
    if key in KEYS or key in known_keys() or key.startswith(OWN):
        return ""
    if key in ansible.WORDS:
        return f"{ansible.WORDS[key]}; {key!r} is Ansible's word"
    section = key.partition(".")[0]
    if section in KEYS:  # dotted, and not on the command line
        return f"the section {section!r} with the rest of the key in it"
    private = key.startswith("_")
    names = [name for name in (*KEYS, *known_keys()) if name.startswith("_") == private]
    near = [name for name in (f"ssh_{key.lower()}", f"_{key.lower()}") if name in known_keys()]  # port, sudo
    near = near or difflib.get_close_matches(section.lower(), names, n=1, cutoff=_NEAR_PRIVATE if private else _NEAR)
    if private and not near:
        return ""
    right = [f"{'the' if name in KEYS else PYINFRAS} key {name!r}" for name in near] or ["a known key"]
    if (paths := paths_of(key)) and key.lower() not in near:
        right = [f"the key {' or '.join(paths)}"]
    return right[0] if private else f"{right[0]}, or {OWN}{key} for one of the site's own"


def _unusable(host: Host, layers: Sequence[Layer]) -> Iterator[Problem]:
    """Yield values that pyinfra would end on: of each key the one that holds, the last."""
    holding = {key: (layer.name, value) for layer in layers for key, value in layer.values.items()}
    kinds = _kinds(host.connector_cls.data_cls)  # type: ignore[arg-type]  # it is hashable, as every class
    for key in holding.keys() & kinds.keys():
        where, value = holding[key]
        if not (_fits_as_another if isinstance(value, str | int | float) else _fits)(value, kinds[key]):
            name = getattr(kinds[key], "__name__", str(kinds[key]))
            yield Problem(where, key, _shown(key, value), f"a value of type {name}")
        elif key == "ssh_port" and value is not None and not 0 < int(value) < 2**16:
            yield Problem(where, key, _shown(key, value), "a port from 1 to 65535")
        elif key in _FILES and value and not _is_file(str(value)):
            name = printable(str(value), 200) if "PRIVATE KEY" not in str(value) else "file of that name"
            yield Problem(where, key, _shown(key, value), f"a file that exists: there is no {name} (in {Path.cwd()})")


@lru_cache(maxsize=4096)
def _is_file(name: str) -> bool:
    return Path(name).expanduser().is_file()


@cache
def _kinds(data: type) -> dict[str, Any]:
    return get_type_hints(data) | {name: kind for name, kind in all_global_arguments() if name.startswith("_")}


def _fits(value: Any, kind: Any) -> bool:
    try:
        raise_if_bad_type(value, kind, ValueError, "")
    except ValueError:
        return False
    return True


_fits_as_another = lru_cache(maxsize=4096, typed=True)(_fits)
"""The same of a plain value: hosts by the thousand have the same ones."""


def _shown(key: str, value: object) -> str:
    return MASK if is_secret(key) else repr(value)
