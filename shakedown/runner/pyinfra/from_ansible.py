"""An inventory of Ansible as one of pyinfra."""

import ast
import configparser
import keyword
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from shakedown.common.text import counted
from shakedown.hosts import folded, nodes
from shakedown.runner.pyinfra.ansible import NAMES, WORDS

_KINDS: dict[str, type] = {"ssh_port": int, "_sudo": bool}
_RANGE = re.compile(r"\[(\w+):(\w+)(?::(\d+))?\]")
_FORM = "expected groups with hosts, children and vars, as Ansible's inventories have them"
_MOST = 2**24  # characters of a file


@dataclass
class _Group:
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
    """YAML with Ansible's tags: what they hide has no value here."""


_Loader.add_multi_constructor("!", lambda _loader, _tag, _node: "{{ hidden }}")


def translate(source: Path) -> tuple[str, list[str]]:
    """Return the text of an inventory for pyinfra, and what was left out of it. Raise ValueError for a file that is no
    inventory of Ansible, OSError where one cannot be read."""
    groups = _read(source)
    left_out: dict[str, None] = {}
    members = {name: list(dict.fromkeys(_members(groups, name, ()))) for name in groups}
    if not any(members.values()):
        raise ValueError(f"{source}: no host in it: {_FORM}")
    values = {name: dict(_renamed(group.values, f"group {name}", left_out)) for name, group in groups.items()}
    hosts: dict[str, dict[str, Any]] = {}
    for group in groups.values():
        for host, own in group.hosts.items():
            hosts.setdefault(host, {}).update(_renamed(own, f"host {host}", left_out))
    for host, own in hosts.items():  # here one host has one value of all its groups, and there the innermost group's
        its_groups = sorted((name for name in groups if host in members[name]), key=lambda name: _depth(groups, name))
        for key in {key for name in its_groups for key in values[name] if name != "all"} - own.keys():
            given = [values[name][key] for name in its_groups if key in values[name] and name != "all"]
            if any(value != given[-1] for value in given):
                own[key] = given[-1]
    return _text(source, members, values, hosts), list(left_out)


def _text(source: Path, members: dict[str, list[str]], values: dict[str, Any], hosts: dict[str, Any]) -> str:
    parts = [
        f'"""From {source.name}, an inventory of Ansible.\n\nEach group needs its profiles: "gpu": "mi300x", "nic": '
        '"thor2", or "gpu": "cpu".\n"""',
        "from shakedown.hosts import nodes",
    ]
    written: set[str] = set()
    taken = {"nodes"}
    for name, own in members.items():
        if not own or (name == "all" and not values[name]):
            continue
        variable = re.sub(r"\W", "_", name, flags=re.ASCII)
        variable = variable if variable[:1].isalpha() else f"g{variable}"
        while variable in taken or keyword.iskeyword(variable):
            variable += "_"
        taken.add(variable)
        with_data = {host for host in own if hosts.get(host) and host not in written}
        written |= with_data
        listed = (
            _ranges(own) if not with_data else _listed({host: hosts[host] if host in with_data else {} for host in own})
        )
        parts.append(f"{variable} = (\n    {listed},\n    {values[name]!r},\n)")
    return "\n\n".join(parts) + "\n"


def _ranges(hosts: Sequence[str]) -> str:
    ranges = folded(hosts)
    return f"nodes({ranges!r})" if set(nodes(ranges)) == set(hosts) else repr(list(hosts))


def _listed(hosts: Mapping[str, dict[str, Any]]) -> str:
    """Return a list of hosts, a line for each data that some of them have."""
    having: dict[str, list[str]] = {}
    for host, data in hosts.items():
        having.setdefault(repr(data), []).append(host)
    lines = []
    for written, own in having.items():
        pairs = f"*((host, {written}) for host in {_ranges(own)})" if len(own) > 1 else f"({own[0]!r}, {written})"
        lines.append(f"        {pairs if written != '{}' else '*' + _ranges(own)},\n")
    return f"[\n{''.join(lines)}    ]"


def _renamed(values: Mapping[str, Any], where: str, left_out: dict[str, None]) -> Iterator[tuple[str, Any]]:
    """Yield the values under their names here; those that nothing here reads, as the site's own."""
    for word, value in values.items():
        key = NAMES.get(word)
        if "{{" in str(value):
            left_out[f"{where}: {word}: a template, or encrypted"] = None
        elif key is None and word.startswith("ansible_"):
            left_out[f"{where}: {word}: {WORDS.get(word, 'nothing here reads it')}"] = None
        elif key is None:
            yield f"site_{word}", value
        elif _KINDS.get(key) is bool:
            yield key, str(value).lower() in ("true", "yes", "on", "1")
        else:
            yield key, int(value) if _KINDS.get(key) is int and str(value).isdigit() else str(value)


def _members(groups: Mapping[str, _Group], name: str, above: tuple[str, ...]) -> Iterator[str]:
    if name == "all":
        yield from (host for group in groups.values() for host in group.hosts)
    elif name not in above and name in groups:
        yield from groups[name].hosts
        for child in groups[name].children:
            yield from _members(groups, child, (*above, name))


def _depth(groups: Mapping[str, _Group], name: str, above: tuple[str, ...] = ()) -> tuple[int, str]:
    """Return how deep a group lies below `all`: of two groups the deeper one decides, then the later name."""
    parents = [other for other, group in groups.items() if name in group.children and other not in above]
    return max((_depth(groups, other, (*above, name))[0] + 1 for other in parents), default=0), name


def _read(source: Path) -> dict[str, _Group]:
    text = source.read_bytes()[: _MOST + 1].decode("utf-8-sig")
    if len(text) > _MOST:
        raise ValueError(f"{source}: more than {counted(_MOST, 'character')}")
    groups = {"all": _Group()}
    try:
        if source.suffix in (".yml", ".yaml", ".json"):
            _add(groups, yaml.load(text, _Loader))
        else:
            _add_ini(groups, text)
        for path in sorted(source.parent.glob("group_vars/**/*")) + sorted(source.parent.glob("host_vars/**/*")):
            _add_values(groups, path, path.relative_to(source.parent).parts)
    except (TypeError, AttributeError) as error:  # another shape, wherever in it
        raise ValueError(f"{source}: {_FORM}") from error
    except (yaml.YAMLError, configparser.Error) as error:
        raise ValueError(f"{source}: {' '.join(str(error).split())}") from error
    return groups


def _add(groups: dict[str, _Group], found: Any) -> None:
    for name, parts in found.items():
        group = groups.setdefault(str(name), _Group())
        hosts, children = (parts or {}).get("hosts") or {}, (parts or {}).get("children") or {}
        for pattern in [hosts] if isinstance(hosts, str) else hosts:
            for host in _expanded(str(pattern)):
                own = hosts.get(pattern) if isinstance(hosts, dict) else None
                group.hosts.setdefault(host, {}).update(own or {})
        group.values.update((parts or {}).get("vars") or {})
        group.children.update(dict.fromkeys(map(str, children)))
        _add(groups, children if isinstance(children, dict) else dict.fromkeys(children))


def _add_ini(groups: dict[str, _Group], text: str) -> None:
    """Add groups of INI: sections of hosts, "group:vars" and "group:children"."""
    parser = configparser.RawConfigParser(
        delimiters=("\0",), allow_no_value=True, strict=False, default_section="\0", comment_prefixes=("#", ";")
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names have their case
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
            else:
                pattern, *words = shlex.split(line, comments=True)
                pattern, port = re.fullmatch(r"(.*?)(?::(\d+))?", pattern).groups()  # type: ignore[union-attr]
                own = {word: _literal(value) for word, _, value in (text.partition("=") for text in words)}
                for host in _expanded(pattern):
                    group.hosts.setdefault(host, {}).update(own | ({"ansible_port": int(port)} if port else {}))


def _add_values(groups: dict[str, _Group], path: Path, parts: tuple[str, ...]) -> None:
    if not path.is_file() or path.suffix not in ("", ".yml", ".yaml", ".json"):
        return
    values = yaml.load(path.read_text("utf-8"), _Loader) or {}
    name = Path(parts[1]).stem if len(parts) == 2 and path.suffix else parts[1]
    for group in (groups.get(name, _Group()),) if parts[0] == "group_vars" else groups.values():
        if parts[0] == "group_vars":
            group.values.update(values)
        elif name in group.hosts:
            group.hosts[name].update(values)


def _expanded(pattern: str) -> Iterable[str]:
    match = _RANGE.search(pattern)
    if not match:
        return [pattern]
    low, high, step = match[1], match[2], int(match[3] or 1)
    if low.isdigit() and high.isdigit():
        middles = [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1, step)]
    else:
        middles = [chr(number) for number in range(ord(low[0]), ord(high[0]) + 1, step)]
    return [
        host for middle in middles for host in _expanded(pattern[: match.start()] + middle + pattern[match.end() :])
    ]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
