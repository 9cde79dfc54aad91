"""An inventory of Ansible as one of pyinfra."""

import ast
import configparser
import keyword
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from shakedown.common import plain_yaml
from shakedown.common.lists import grouped
from shakedown.common.text import counted
from shakedown.hosts import folded, nodes
from shakedown.runner.pyinfra.ansible import NAMES, WORDS, named

_KINDS: dict[str, type] = {"ssh_port": int, "_sudo": bool}
_RANGE = re.compile(r"\[(\w+):(\w+)(?::(\d+))?\]")
_SECTION = re.compile(r"\[(?P<header>[^:\]]+(?::\w+)?)\]\s*(?:[#;].*)?$")
_FORM = "expected groups with hosts, children and vars, as Ansible's inventories have them"
_MOST = 2**24  # characters of a file, also with its aliases written out
_MOST_HOSTS = 200_000  # of all groups


@dataclass
class _Group:
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)  # parts that Ansible does not know


class _Groups(dict[str, _Group]):
    """The groups of a file, as they are read."""

    _left = 4 * _MOST_HOSTS  # hosts that may still be named: ranges make many of a few characters

    def add(self, group: _Group, pattern: str, own: dict[str, Any]) -> None:
        """Add the hosts of a pattern to a group. Raise ValueError for too many of them."""
        host_or_range, address = named(pattern)
        hosts = _expanded(host_or_range)
        self._left -= len(hosts)
        if self._left < 0:
            raise ValueError(f"{pattern[:60]!r}: more than {4 * _MOST_HOSTS} hosts are named, with those before it")
        for host in hosts:
            group.hosts.setdefault(host, {}).update(own | address)


class _Loader(plain_yaml.Loader):
    """YAML with Ansible's tags: what they hide has no value here. Aliases count as long as what they stand for."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        alias, sizes = self.check_event(yaml.AliasEvent), self.__dict__.setdefault("sizes", {})
        node = super().compose_node(parent, index)
        if not alias:
            inner = node.value if node.id == "sequence" else [part for pair in node.value for part in pair]
            sizes[id(node)] = 1 + (len(node.value) if node.id == "scalar" else sum(sizes[id(part)] for part in inner))
        if sizes.get(id(node), _MOST + 1) > _MOST:  # without a size: an alias within what it stands for
            raise yaml.YAMLError(f"more than {counted(_MOST, 'character')} with its aliases written out")
        return node


_Loader.add_multi_constructor("!", lambda _loader, _tag, _node: "{{ hidden }}")


def translate(source: Path) -> tuple[str, list[str]]:
    """Return the text of an inventory for pyinfra, and what was left out. Raise ValueError, OSError."""
    groups = _read(source)
    others = [f"group {name}: {part}" for name in groups for part in sorted(groups[name].others)]
    left_out = dict.fromkeys(f"{part}: Ansible has hosts, children and vars there" for part in others)
    members, depths = _members(groups, source)
    if not any(members.values()):
        raise ValueError(f"{source}: no host in it: {_FORM}")
    empty = [name for name, own in members.items() if not own and name != "ungrouped"]
    left_out |= {f"group {name}: no host is in it": None for name in empty}
    values = {name: dict(_renamed(group.values, f"group {name}", left_out)) for name, group in groups.items()}
    hosts: dict[str, dict[str, Any]] = {}
    for group in groups.values():
        for host, own in group.hosts.items():
            hosts.setdefault(host, {}).update(_renamed(own, f"host {host}", left_out))
    for host, own in hosts.items():  # here one host has one value of all its groups, and there the innermost group's
        its_groups = sorted((name for name in groups if host in members[name]), key=lambda name: (depths[name], name))
        for key in {key for name in its_groups for key in values[name] if name != "all"} - own.keys():
            given = [values[name][key] for name in its_groups if key in values[name] and name != "all"]
            if any(value != given[-1] for value in given):
                own[key] = given[-1]
    return _text(source, members, values, hosts), list(left_out)


def _text(source: Path, members: Mapping[str, Collection[str]], values: dict[str, Any], hosts: dict[str, Any]) -> str:
    name = re.sub(r"[^ \w.-]", "_", source.name)
    parts = [
        f'"""From {name}, an inventory of Ansible.\n\nEach group needs its profiles: "gpu": "mi300x", "nic": '
        '"thor2", or "gpu": "cpu".\n"""',
        "from shakedown.hosts import nodes",
    ]
    written: set[str] = set()
    taken = {"nodes"}
    grouped_hosts = {host for name, own in members.items() if name != "all" for host in own}
    for name, own in members.items():
        if not own or (name == "all" and not values[name] and grouped_hosts.issuperset(own)):
            continue
        variable = re.sub(r"\W", "_", name, flags=re.ASCII)
        variable = variable if variable[:1].isalpha() else f"g{variable}"
        while variable in taken or keyword.iskeyword(variable):
            variable += "_"
        taken.add(variable)
        with_data = {host for host in own if hosts.get(host) and host not in written}
        written |= with_data
        data = {host: hosts[host] if host in with_data else {} for host in own}
        listed = _listed(data) if with_data else _ranges(own)
        parts.append(f"{variable} = (\n    {listed},\n    {values[name]!r},\n)")
    return "\n\n".join(parts) + "\n"


def _ranges(hosts: Collection[str]) -> str:
    ranges = folded(hosts)
    return f"nodes({ranges!r})" if set(nodes(ranges)) == set(hosts) else repr(list(hosts))


def _listed(hosts: Mapping[str, dict[str, Any]]) -> str:
    """Return a list of hosts, a line for each data that some of them have."""
    lines = []
    for written, own in grouped((repr(data), host) for host, data in hosts.items()).items():
        pairs = f"*((host, {written}) for host in {_ranges(own)})" if len(own) > 1 else f"({own[0]!r}, {written})"
        lines.append(f"        {pairs if written != '{}' else '*' + _ranges(own)},\n")
    return f"[\n{''.join(lines)}    ]"


def _renamed(values: Mapping[str, Any], where: str, left_out: dict[str, None]) -> Iterator[tuple[str, Any]]:
    """Yield the values under their names here; those that nothing here reads, as the site's own."""
    for name, value in values.items():
        word = str(name)
        key = NAMES.get(word)
        if "{{" in str(value):
            left_out[f"{where}: {word}: a template, or encrypted"] = None
        elif key is None and word.startswith("ansible_"):
            left_out[f"{where}: {word}: {WORDS.get(word, 'nothing here reads it')}"] = None
        elif key is None:
            yield f"site_{word}", _literal(repr(value))  # as text what Python has no literal for: a date, .nan
        elif _KINDS.get(key) is bool:
            yield key, str(value).lower() in ("true", "yes", "on", "1")
        else:
            yield key, int(value) if _KINDS.get(key) is int and str(value).isdigit() else str(value)


def _members(groups: Mapping[str, _Group], source: Path) -> tuple[dict[str, dict[str, None]], dict[str, int]]:
    """Return the hosts of each group, and how deep it lies below `all`: of two groups the deeper one decides, then the
    later name. Raise ValueError for groups within each other, and for too many hosts."""
    try:
        order = list(TopologicalSorter({name: group.children for name, group in groups.items()}).static_order())
    except CycleError as error:
        raise ValueError(f"{source}: groups within each other: {', '.join(error.args[1])}") from None
    members: dict[str, dict[str, None]] = {}
    depths, total = dict.fromkeys(order, 0), 0
    for name in order:  # children before their parents
        members[name] = dict.fromkeys(groups[name].hosts)
        for child in groups[name].children:
            members[name] |= members[child]
        if (total := total + len(members[name])) > _MOST_HOSTS:
            raise ValueError(f"{source}: its groups have more than {_MOST_HOSTS} hosts")
    for name in reversed(order):
        for child in groups[name].children:
            depths[child] = max(depths[child], depths[name] + 1)
    every = dict.fromkeys(host for group in groups.values() for host in group.hosts)
    return {name: every if name == "all" else members[name] for name in groups}, depths


def _read(source: Path) -> dict[str, _Group]:
    text = _content(source)
    if text.startswith("#!"):
        raise ValueError(f"{source}: a program: run it, as init --from <(ansible-inventory -i {source} --list --yaml)")
    groups = _Groups(all=_Group())
    try:
        if source.suffix in (".yml", ".yaml", ".json"):
            found = yaml.load(text, _Loader)
            own = found.pop("_meta", {}).get("hostvars", {})  # ansible-inventory --list has all hosts' values there
            _add(groups, found)
            for group in groups.values():
                group.hosts |= {host: {**values, **own.get(host, {})} for host, values in group.hosts.items()}
        else:
            _add_ini(groups, text)
        for path in sorted(source.parent.glob("group_vars/**/*")) + sorted(source.parent.glob("host_vars/**/*")):
            _add_values(groups, path, path.relative_to(source.parent).parts)
    except (TypeError, AttributeError, RecursionError) as error:  # another shape, wherever in it
        raise ValueError(f"{source}: {_FORM}") from error
    except (yaml.YAMLError, configparser.Error) as error:
        raise ValueError(f"{source}: {' '.join(str(error).split())}") from error
    return groups


def _content(path: Path) -> str:
    if path.is_fifo() and path.resolve().exists():  # it would be waited for; a shell's own pipe has no name
        raise ValueError(f"{path}: it is no file")
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(_MOST + 1)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no UTF-8 (byte {error.start + 1}): save the file in this encoding") from error
    if len(text) > _MOST:
        raise ValueError(f"{path}: more than {counted(_MOST, 'character')}")
    return text


def _add(groups: _Groups, found: Any) -> None:
    for name, parts in found.items():
        group = groups.setdefault(str(name), _Group())
        hosts, children = (parts or {}).get("hosts") or {}, (parts or {}).get("children") or {}
        for pattern in [hosts] if isinstance(hosts, str) else hosts:
            groups.add(group, str(pattern), (hosts.get(pattern) if isinstance(hosts, dict) else None) or {})
        group.values.update((parts or {}).get("vars") or {})
        group.others |= {str(part) for part in parts or () if part not in ("hosts", "children", "vars")}
        group.children.update(dict.fromkeys(map(str, children)))
        _add(groups, children if isinstance(children, dict) else dict.fromkeys(children))


def _add_ini(groups: _Groups, text: str) -> None:
    """Add groups of INI: sections of hosts, "group:vars" and "group:children"."""
    parser = configparser.RawConfigParser(
        delimiters=("\0",), allow_no_value=True, strict=False, default_section="\0", comment_prefixes=("#", ";")
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names have their case
    parser.SECTCRE = _SECTION  # "[fe80::1]:22" and "[fe80::1]" are hosts
    parser.read_string("\n".join(["[ungrouped]", *map(str.strip, text.splitlines())]))
    for section in parser.sections():
        name, _, kind = section.partition(":")
        group = groups.setdefault(name, _Group())
        for line in parser[section]:
            if kind == "vars":
                word, _, value = line.partition("=")
                group.values[word.strip()] = _literal(value.strip())
            elif kind == "children":
                group.children[line.split()[0]] = None
                groups.setdefault(line.split()[0], _Group())
            elif kind not in ("", "hosts"):
                group.others.add(kind)
            else:
                pattern, *words = shlex.split(line, comments=True)
                own = {word: _literal(value) for word, _, value in (text.partition("=") for text in words)}
                groups.add(group, pattern, own)


def _add_values(groups: dict[str, _Group], path: Path, parts: tuple[str, ...]) -> None:
    if not path.is_file() or path.suffix not in ("", ".yml", ".yaml", ".json"):
        return
    values = yaml.load(_content(path), _Loader) or {}
    name = Path(parts[1]).stem if len(parts) == 2 and path.suffix else parts[1]
    for group in (groups.get(name, _Group()),) if parts[0] == "group_vars" else groups.values():
        if parts[0] == "group_vars":
            group.values.update(values)
        elif name in group.hosts:
            group.hosts[name].update(values)


def _expanded(pattern: str) -> Sequence[str]:
    if not (match := _RANGE.search(pattern)):
        return [pattern]
    low, high, step = match[1], match[2], int(match[3] or 1)
    number = low.isdigit() and high.isdigit()
    first, last = (int(low), int(high)) if number else (ord(low[0]), ord(high[0]))
    tails = _expanded(pattern[match.end() :])
    if (last - first) // max(step, 1) * len(tails) > _MOST_HOSTS:
        raise ValueError(f"{pattern[:60]!r}: more than {_MOST_HOSTS} hosts")
    middles = [str(part).zfill(len(low)) if number else chr(part) for part in range(first, last + 1, step)]
    return [f"{pattern[: match.start()]}{middle}{tail}" for middle in middles for tail in tails]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
