"""Host settings of a training node: kernel settings, limits, groups, modules. Each is changed now and kept across a
reboot; what stood there before is recorded for rollback."""

from collections.abc import Mapping
from typing import Literal

from pyinfra.api import OperationValueError, QuoteString, StringCommand, operation
from pyinfra.api.arguments_typed import PyinfraOperation
from pyinfra.context import host

from shakedown.facts.settings import Contents, Modules
from shakedown.node import cmdline as node_modules
from shakedown.node import system
from shakedown.node.setting import SETTINGS, Setting, SysctlSetting, proc_path
from shakedown.operations import atomic, boot, boot_values, commands
from shakedown.operations.atomic import Step, remember
from shakedown.operations.commands import Commands, refuse, show_change, verify

LIMITS = "/etc/security/limits.d/90-shakedown.conf"
LIMITS_FILES = ["/etc/security/limits.conf", "/etc/security/limits.d/*.conf"]
NR_OPEN = "/proc/sys/fs/nr_open"
MODULES = "/etc/modules-load.d/shakedown.conf"
MODULES_FILES = ["/etc/modules", *(f"{folder}/modules-load.d/*.conf" for folder in ("/etc", "/run", "/usr/lib"))]


@operation()
def sysctl(key: str, value: str | int) -> Commands:
    """
    Set one kernel setting, now and at every boot.

    + key: name of the setting, as sysctl(8) spells it
    + value: its value; several numbers are separated by one space

    **Example:**

    .. code:: python

        from shakedown.operations import tuning
        tuning.sysctl(name="Answer ARP by interface", key="net.ipv4.conf.all.arp_ignore", value=2)
    """
    setting = SETTINGS["sysctl"]
    yield from _set(setting, setting.word(value), commands.sysctl_key(key))


@operation()
def limits(
    memlock: Literal["unlimited"] | int | None = None, nofile: int | None = None, user: str | None = None
) -> Commands:
    """
    Set how much memory may be locked and how many files may be open, for everybody who logs in from now on.

    + memlock: KiB or ``unlimited``
    + nofile: number of open files
    + user: a user whose own lines in limits.d must not say otherwise

    **Example:**

    .. code:: python

        from shakedown.operations import tuning
        tuning.limits(name="Room for RDMA registrations", memlock="unlimited", nofile=1048576)
    """
    wanted = {item: str(value) for item, value in (("memlock", memlock), ("nofile", nofile)) if value is not None}
    files = host.get_fact(Contents, patterns=[*LIMITS_FILES, NR_OPEN])
    if nofile is not None and nofile > int((files.get(NR_OPEN) or ["0"])[0] or 0) > 0:
        # pam_limits could not set it, and then no user could log in.
        yield refuse(f"nofile={nofile} is more than fs.nr_open allows ({(files.get(NR_OPEN) or [''])[0]})")
        return
    domains = ["*", "root", *([user] if user and user != "root" else [])]
    if len(domains[-1].split()) != 1 or "#" in domains[-1]:
        yield refuse(f"limits.d cannot name {user!r}: a blank ends a name there")
        return
    if not _lacking_limits(files, domains, wanted):
        host.noop(f"limits.d gives {boot.listed(wanted)}")
        return
    replaced = tuple(f"{domain} - {item} " for item in wanted for domain in domains)
    kept = [line for line in atomic.body(files.get(LIMITS)) if not line.startswith(replaced)]
    lines = [f"{domain} - {item} {value}" for item, value in wanted.items() for domain in domains]
    lines = [atomic.HEADER, *kept, *lines]
    show_change(LIMITS, files.get(LIMITS), lines)
    yield remember("limits", [])
    yield atomic.write(LIMITS, lines)

    def wrong() -> str | None:
        now = host.get_fact(Contents, patterns=LIMITS_FILES)
        left = _lacking_limits(now, domains, wanted)
        return f"another file of limits.d decides {', '.join(left)}" if left else None

    yield verify(wrong)


@operation()
def groups(user: str, groups: list[str]) -> Commands:
    """
    Make a user a member of groups; a group that does not exist is created. Sessions that are open do not notice.

    + user: who runs jobs
    + groups: names of the groups

    **Example:**

    .. code:: python

        from shakedown.operations import tuning
        tuning.groups(name="May open GPUs", user="ubuntu", groups=["render", "video"])
    """
    commands.check_accounts(user, *groups)
    members = _members()
    lacking = [group for group in groups if user not in members.get(group, [])]
    if not lacking:
        host.noop(f"{user} is in {', '.join(groups)}")
        return
    show_change(f"groups of {user}", [], lacking)
    for group in lacking:
        created = [] if group in members else [Step("group", group)]
        yield remember(f"groups.{group}.{user}", [Step("member", group, user), *created])
    for group in lacking:
        if group not in members:
            yield StringCommand("/usr/sbin/groupadd --system --", QuoteString(group))
        # Not usermod, which knows only the users of /etc/passwd.
        yield StringCommand("gpasswd --add", QuoteString(user), QuoteString(group))

    def wrong() -> str | None:
        now = _members()
        left = [group for group in lacking if user not in now.get(group, [])]
        return f"{user} is still not in {', '.join(left)}" if left else None

    yield verify(wrong)


@operation()
def modules(modules: list[str]) -> Commands:
    """
    Load kernel modules, now and at every boot.

    + modules: names of the modules

    **Example:**

    .. code:: python

        from shakedown.operations import tuning
        tuning.modules(name="User-space verbs", modules=["ib_uverbs", "rdma_ucm"])
    """
    names = commands.module_names(modules)
    here = host.get_fact(Modules, names=names)
    files = host.get_fact(Contents, patterns=MODULES_FILES)
    kept = node_modules.at_boot(boot_values.Fetched(files, {}))
    absent = [name for name in names if not here.get(name)]
    forgotten = [name for name in names if name not in kept]
    if not absent and not forgotten:
        host.noop(f"{', '.join(names)}: loaded, now and at boot")
        return
    lines = [atomic.HEADER, *atomic.body(files.get(MODULES)), *forgotten]
    if absent:
        show_change("loaded modules", [], absent)
    if forgotten:
        show_change(MODULES, files.get(MODULES), lines)
    for name in dict.fromkeys([*absent, *forgotten]):
        yield remember(f"modules.{name}", [Step("module", name, "absent" if name in absent else "loaded")])
    if absent:
        yield StringCommand(f"PATH=$PATH:/usr/sbin:/sbin; for m in {' '.join(absent)}; do modprobe $m || exit 1; done")
    if forgotten:
        yield atomic.write(MODULES, lines)

    def wrong() -> str | None:
        now = host.get_fact(Modules, names=names)
        left = [name for name in names if not now.get(name)]
        return f"not loaded although modprobe said so: {', '.join(left)}" if left else None

    yield verify(wrong)


def _set(setting: Setting, wanted: str, detail: str = "") -> Commands:
    if not setting.accepts(wanted):
        raise OperationValueError(f"{setting.name} takes {setting.values}, not {wanted!r}")
    if isinstance(setting, SysctlSetting):
        yield from _set_sysctl(setting, detail, wanted)
    else:
        yield from boot.make({setting.key(): wanted})


def _set_sysctl(setting: SysctlSetting, detail: str, wanted: str) -> Commands:
    key = setting.sysctl or detail
    path = proc_path(key)
    name = f"{setting.name}.{detail}" if detail else setting.name

    def look() -> tuple[dict[str, list[str] | None], str | None, str | None, str]:
        tree = boot_values.fetched(setting, detail, boot_values.SYSCTL_PATTERNS)
        lines = tree.files.get(path)
        running = " ".join(lines[0].split()) if lines else None
        return dict(tree.files), running, *boot_values.sysctl_at_boot(tree, key)

    files, running, kept, _ = look()
    if running is None and setting.absent == wanted:
        host.noop(f"this kernel has no {key}")
        return
    if running is None:
        yield refuse(f"{path} {'cannot be read' if path in files else 'is not there: this kernel has no such setting'}")
        return
    if running == kept == wanted:
        host.noop(f"{key} is {wanted}, now and at boot")
        return

    present = atomic.body(files.get(boot_values.SYSCTL_FILE))
    lines = [line for line in present if line.partition("=")[0].strip() != key]
    lines = [atomic.HEADER, *lines, f"{key} = {wanted}"]
    if kept != wanted:
        show_change(boot_values.SYSCTL_FILE, files.get(boot_values.SYSCTL_FILE), lines)
    if running != wanted:
        show_change(path, [running], [wanted])
    yield remember(name, [Step(setting.step, path, setting.before(running))])
    # First what the kernel may refuse: a value that it does not take is not written down either.
    if running != wanted:
        yield StringCommand("echo", QuoteString(wanted), ">", QuoteString(path))
    if kept != wanted:
        yield atomic.write(boot_values.SYSCTL_FILE, lines)

    def wrong() -> str | None:
        _, now, at_boot, named_by = look()
        if now != wanted:
            return f"{path} is {now} after writing {wanted}"
        return None if at_boot == wanted else f"{key} will be {at_boot} at boot, not {wanted}: {named_by} says so"

    yield verify(wrong)


def _lacking_limits(files: Mapping[str, list[str] | None], domains: list[str], wanted: dict[str, str]) -> list[str]:
    readable = {path: lines for path, lines in files.items() if lines is not None}
    lines = system.limits_lines(boot_values.Fetched(readable, {}))
    effective = {domain: system.effective_limits(lines, domain, []) for domain in domains}
    return [f"{d} {i}={effective[d][i]}" for d in domains for i, value in wanted.items() if effective[d][i] != value]


def _members() -> dict[str, list[str]]:
    rows = system.parse_table(host.get_fact(Contents, patterns=["/etc/group"]).get("/etc/group") or [])
    return {row[0]: row[3].split(",") for row in rows}


def _operation(setting: Setting) -> PyinfraOperation[...]:

    def switch(enabled: bool | int = False) -> Commands:
        yield from _set(setting, setting.word(enabled))

    def change(value: str | int) -> Commands:
        yield from _set(setting, setting.word(value))

    argument, example = ("enabled", "False") if setting.switch else ("value", repr(setting.example))
    function = switch if setting.switch else change
    function.__name__ = function.__qualname__ = setting.name
    function.__doc__ = f"""
    Set now and at every boot: {setting.doc}.

    + {argument}: {"on or off" if setting.switch else f"``{setting.values}``"}

    **Example:**

    .. code:: python

        from shakedown.operations import tuning
        tuning.{setting.name}({argument}={example})
    """
    return operation()(function)


# tuning.thp, tuning.c2 and so on: one for each file of shakedown/node/settings that a node has once.
_SINGLE = [known for known in SETTINGS.values() if not known.details]
OF_SETTINGS: list[PyinfraOperation[...]] = [globals().setdefault(one.name, _operation(one)) for one in _SINGLE]
