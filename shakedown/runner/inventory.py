"""What pyinfra's inventory says, in our words: the hosts in order, their layers, their desired states."""

import getpass
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from pyinfra.api import Host, Inventory, State

from shakedown.common.lists import grouped
from shakedown.desired.layers import HostLayers, Layer, leaves
from shakedown.desired.problems import DesiredStateError, Problem, shown
from shakedown.desired.resolve import KEYS, Resolved, asks, nested
from shakedown.runner.features import resolve
from shakedown.runner.progress import progress
from shakedown.runner.pyinfra.inventory_file import key_problems, no_name, without_group
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.pyinfra.written import files, placed, twice

_GROUP = "group "
_ASKED = 'a desired state in host or group data, at least a profile as "gpu": "mi300x" ("cpu" where there is none)'
_ASKED += "; --limit leaves hosts out"  # a host of which nothing is asked would pass


def hosts_in_limit(state: State) -> list[Host]:
    """Return the hosts of this run, in inventory order, reachable or not."""
    return [host for host in state.inventory if state.is_host_in_limit(host)]


def desired_states(state: State, to_train: bool = False, unasked: bool = False) -> Resolved:
    """Return the desired state of every host. Raise DesiredStateError with every error of every host at once.
    `to_train`: these hosts are to train together, so what their number makes impossible is an error too. `unasked`:
    hosts of which nothing is asked are allowed, since the hosts are not compared (a rollback)."""
    kept = progress(state)
    if kept.resolved is None:
        hosts = hosts_in_limit(state)
        if bad := [(host.name, why) for host in hosts if (why := no_name(host.name))]:  # pyinfra shows them as they are
            raise DesiredStateError([Problem(f"host {name}", "its name", shown(name), why) for name, why in bad])
        named = [host.name for host in state.inventory if host.name[:1] != "@"]  # a container's is no name of DNS
        alike = grouped((name.lower().rstrip("."), name) for name in named).values()
        if double := [names for names in alike if len(names) > 1]:
            expected = "one spelling: names of hosts have no capital letters of their own, and no dot at the end"
            wrong = [Problem(_hosts(names), "its names", shown(names), expected) for names in double]
            raise DesiredStateError(placed(wrong, files(invocation.inventory)))
        whole = len(hosts) == len(list(state.inventory))
        resolved = kept.resolved = resolved_of(hosts, whole, to_train, unasked)
        for line in resolved.notes:
            click.echo(line, err=True)
        if to_train and hosts and not any(desired.smoke for desired in resolved.states.values()):
            click.echo("no host of this run has a section smoke: nothing will be trained", err=True)
    return kept.resolved


def resolved_of(hosts: list[Host], whole: bool, to_train: bool = False, unasked: bool = False) -> Resolved:
    """Merge and validate the layers of the hosts. The errors include those that only an inventory's files show."""
    layers = [layers_of(host) for host in hosts]
    made, read = hosts[0].inventory if hosts else None, files(invocation.inventory, invocation.group_data)
    problems = [problem for file in read for problem in twice(file, groups=file == read[0])]
    if made and not unasked:
        problems += without_group(read, made)
        if names := tuple(host.name for host in layers if not asks(host)):
            problems.append(Problem(_hosts(names), "gpu", "nothing", _ASKED, names))
    problems += contradictions(layers)
    problems += key_problems({host.name: host for host in hosts}, layers)
    try:
        resolved = resolve(layers, whole, to_train)
    except DesiredStateError as error:
        raise DesiredStateError(placed([*problems, *error.problems], read)) from error
    if problems:
        raise DesiredStateError(placed(problems, read))
    return replace(resolved, of_job=tuple(placed(resolved.of_job, read)))


def contradictions(hosts: Sequence[HostLayers]) -> list[Problem]:
    """Return the keys to which two groups of one host give different values. pyinfra takes one of them, by the order of
    its groups. Group `all` is below every group, and what the host's own data or --data say decides."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for host in hosts:
        groups = [layer for layer in host.layers if layer.name.startswith(_GROUP) and layer.name != f"{_GROUP}all"]
        own = [layer for layer in host.layers if not layer.name.startswith(_GROUP)]
        decided = {path for layer in own for path, _ in leaves(layer.values)}
        named = [(layer.name.removeprefix(_GROUP), layer.values) for layer in groups if len(groups) > 1]
        values = grouped((path, (name, value)) for name, given in named for path, value in leaves(given))
        for path, given in values.items():
            if any(path == above or path.startswith(f"{above}.") for above in decided):
                continue
            groups_of = {group for group, _ in given}
            beneath = [(group, below) for below in values if below.startswith(f"{path}.") for group, _ in values[below]]
            given = [*given, *((group, f"{below} of its own") for group, below in beneath if group not in groups_of)]
            if all(value == given[0][1] for _, value in given):
                continue
            names = ", ".join(group for group, _ in given)
            shown = " and ".join(dict.fromkeys(repr(value) for _, value in given))
            found.setdefault((f"groups {names}", path, shown), []).append(host.name)
    expected = "one value: give it in one of these groups, or decide it in the host's own data"
    rows = ((f"{where} of {_hosts(names)}", path, shown, names) for (where, path, shown), names in found.items())
    return [Problem(where, path, shown, expected, tuple(names)) for where, path, shown, names in rows]


def _hosts(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"host{'s' if len(names) > 1 else ''} {', '.join(names[:8])}{more}"


def unread_group_data(inventory: str, made: Inventory, cwd: str | None, more: Sequence[str] = ()) -> str:
    """Files of group_data of a site that were meant for this inventory and that pyinfra has not read: it looks in the
    working folder, beside the inventory file, and where --group-data says (`more`), but not in the folder above the
    inventory's, where a site has its group_data. Empty: there are none."""
    file = Path(inventory)
    if not file.is_file():
        return ""
    beside = file.resolve().parent
    folder = beside.parent / "group_data"
    read = {path.resolve() for path in (Path(cwd or ".", "group_data"), beside / "group_data", *map(Path, more))}
    if folder.resolve() in read:
        return ""
    names = sorted(path.name for path in folder.glob("*.py") if path.stem == "all" or path.stem in made.groups)
    if not names:
        return ""
    why = "pyinfra reads group_data in the working folder and beside the inventory file"
    remedy = f"run this in {folder.parent}, or move the folder to {beside}"
    return f"{folder}: {', '.join(names)} would not be read: {why}; {remedy}"


def layers_of(host: Host) -> HostLayers:
    """Return a host's own layers, lowest first, in pyinfra's precedence."""
    inventory = host.inventory
    layers = [Layer(f"{_GROUP}all", dict(inventory.get_data()))]
    layers += [Layer(f"{_GROUP}{group}", dict(inventory.get_group_data(group))) for group in host.groups]
    layers += [Layer(f"host {host.name}", dict(inventory.get_host_data(host.name)))]
    data = inventory.get_override_data() or {}  # of --data: whole keys, then each dotted key
    dotted = {key: value for key, value in data.items() if "." in key and key.partition(".")[0] in KEYS}
    whole = {key: value for key, value in data.items() if key not in dotted}
    layers += [Layer("--data", values) for values in (whole, *(nested(key, value) for key, value in dotted.items()))]
    user = str(host.data.get("ssh_user") or getpass.getuser())  # that pyinfra logs in as, and that runs jobs there
    return HostLayers(host.name, [layer for layer in layers if layer.values], user)


def group_of(host: Host) -> str:
    """Return the group within which a node is compared with others: the first group that the inventory file names."""
    return next((group for group in host.groups if group != "all"), "all")
