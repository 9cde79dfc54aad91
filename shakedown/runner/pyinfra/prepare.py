"""What the guard does with a run of this project's deploys, between the inventory and the first connection."""

import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import gevent
from pyinfra.api import State
from pyinfra.context import ctx_inventory, ctx_state

from shakedown.common.log import LOG_FORMAT, configure
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import DesiredStateError, Problem
from shakedown.hosts import globs, select
from shakedown.recipes.recipe import families
from shakedown.runner.ending import finish, watch
from shakedown.runner.inventory import desired_states, hosts_in_limit, resolved_of, unread_group_data
from shakedown.runner.pyinfra.connection import bind
from shakedown.runner.pyinfra.inventory_file import SEVERAL, groups_of
from shakedown.runner.pyinfra.invocation import USAGE, invocation
from shakedown.runner.pyinfra.written import files
from shakedown.runner.session import session
from shakedown.runs.folder import why_none_can_be_kept
from shakedown.state.findings import Verdict
from shakedown.state.images import parse

# Deploy -> the family of its document's recipes, and whether its image is to be named by digest.
DOCUMENTED = {"megatron_source": ("radeon", False), "stanford_megatron": ("stanford", True)}


def problems(deploy: str, hosts: Mapping[str, DesiredState]) -> Iterator[Problem]:
    """Yield smoke runs that are no recipe of this deploy's family, or whose image lacks the digest that it needs."""
    if deploy not in DOCUMENTED:
        return
    family, by_digest = DOCUMENTED[deploy]
    known = families()[family]
    for name, desired in hosts.items():
        if (smoke := desired.smoke) is None:
            continue
        where = f"host {name}, for deploy/{deploy}.py"
        if smoke.recipe not in known.recipes:
            yield Problem(where, "smoke.recipe", repr(smoke.recipe), f"one of {', '.join(known.recipes)}")
        elif by_digest:
            reference = desired.images[smoke.image].reference if smoke.image else "no image"
            if smoke.image is None or not parse(reference).digest:
                wanted = f"an image that is named by digest; the document's is {known.container.image}"
                yield Problem(where, "smoke.image", reference, wanted)


_FEW = 8  # hosts that are spelt out


def before_connecting() -> None:
    """Check the desired states, and have the run watched, before pyinfra connects; else end the process."""
    try:
        _prepare()
    except BaseException as error:  # unguarded, the deploy would go on
        traceback.print_exc()
        _end(f"the deploy could not be prepared: {type(error).__name__}: {error}", 1)


def _prepare() -> None:
    state = ctx_state.get()
    while not state.initialised:
        gevent.sleep(0)
    if not sys.stdin.isatty():
        state.should_raise_failed_hosts = lambda _state: False
    configure(os.environ.get(LOG_FORMAT, ""))
    bind(state)
    watch(state)
    try:
        compares = any(deploy.compares for deploy in invocation.deploys)
        more = invocation.group_data
        if compares and (unread := unread_group_data(invocation.inventory, state.inventory, state.cwd, more)):
            _end(unread, USAGE)
        odd = any(len(host.name) == 1 or not SEVERAL.isdisjoint(host.name) for host in state.inventory)
        if odd or files(invocation.inventory)[1:]:  # a text in place of a list is a host for each of its characters,
            _read_again()  # and group_data replaces what the inventory gives a group
        states = desired_states(state, invocation.trains, unasked=not compares).states
        if wrong := [problem for deploy in invocation.deploys for problem in problems(deploy.name, states)]:
            raise DesiredStateError(wrong)
    except DesiredStateError as error:
        _end(f"{invocation.inventory}: {error}", USAGE)
    for section in (deploy.section for deploy in invocation.deploys if deploy.section):
        if not any(getattr(desired, section) for desired in states.values()):
            _end(f"no host of this run has a section {section}, so there is nothing to do", USAGE)
    if invocation.trains and not invocation.dry and (reason := why_none_can_be_kept()):
        _end(reason, USAGE)
    invocation.finish = lambda: _finish(state, compares)
    invocation.connecting = True


def _finish(state: State, compares: bool) -> Verdict:
    """End the run. Where no host was reached, pyinfra has ended before the deploy began: here the hosts are judged."""
    lost = hosts_in_limit(state) and not state.active_hosts
    if compares and lost and not (invocation.interrupted or invocation.error):
        session()
    return finish(state)


def _end(message: str, code: int) -> None:
    """SystemExit would reach the main greenlet only after those that connect have had their turn."""
    sys.stderr.write(f"shakedown: {message}\n")
    sys.stderr.flush()
    os._exit(code)


def _read_again() -> None:
    if Path(invocation.inventory).is_file():
        groups_of(invocation.inventory)


def wrong_data() -> str:
    """Return what is wrong with an inventory on which pyinfra has ended before there was a state."""
    try:
        _read_again()
        if ctx_inventory.isset():
            resolved_of(list(ctx_inventory.get()), whole=True)
    except DesiredStateError as error:
        return str(error)
    return ""


def spelt(option: str, word: str) -> str:
    """Return how a choice of hosts is written for pyinfra, or for our own command where that would be long."""
    with suppress(ValueError):
        known = _names()
        hosts = [(term, host) for term in globs(word) for host in _chosen(term.removeprefix("!"), known)]
        chosen = [(host, "exclude" if term.startswith("!") else option) for term, host in hosts]
        if len(chosen) <= _FEW:
            return f"Write: {' '.join(f'--{own} {shlex.quote(name)}' for name, own in chosen)}"
    own = f"!{word}" if option == "exclude" else word
    return f"The shakedown command reads them: --limit {shlex.quote(own)}"


def _names() -> list[str]:
    """Return the hosts of the inventory; none of one that cannot be read, which pyinfra reports."""
    with suppress(Exception, SystemExit):  # it is a user's program
        if Path(invocation.inventory).is_file():
            values = groups_of(invocation.inventory).values()
            groups = [value[0] if isinstance(value, tuple) else value for value in values]
            return [host[0] if isinstance(host, tuple) else host for hosts in groups for host in hosts]
    return []


def _chosen(term: str, known: Sequence[str]) -> list[str]:
    try:
        return select([term], known)
    except ValueError:
        return [term]
