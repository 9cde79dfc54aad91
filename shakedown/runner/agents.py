"""The agents: have them on the nodes, or take them away, and read their reports."""

import time

from gevent.pool import Pool
from pyinfra.api import Host, State
from pyinfra.context import host as current_host

from shakedown.agent import program, report
from shakedown.agent.compile import compiled
from shakedown.checks.examination import Examination, unreached
from shakedown.desired.models import Agent, DesiredState
from shakedown.facts.records import read_verdict
from shakedown.operations import agent
from shakedown.runner.examine import in_words, tried, unread
from shakedown.runner.inventory import hosts_in_limit
from shakedown.runner.progress import progress, waiting_for
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import session
from shakedown.state.findings import Finding


def install() -> None:
    """Have the agent on the current host, or take it away as `agent.state` says, whatever state the node is in."""
    current = session()
    name = current_host.name
    if (state := current.examination.state_of(name)) is None:
        current.fail(current.host(name), "could not be examined", current.examination.blockers(name))
        return
    desired = current.examination.desired[name]
    wanted = desired.agent or Agent()
    if wanted.state == "absent":
        agent.absent(name="No agent")
        return
    document = compiled(name, desired, state.account, program.build().digest, invocation.inventory)
    agent.present(name="Check by a timer", document=document)


def collect(state: State) -> Examination:
    """Read the last report of every host's agent, in one pass. No node is examined, so the nodes are not compared."""
    hosts, examination = hosts_in_limit(state), unread(state)
    pool = Pool(state.config.PARALLEL or None)
    answers = pool.imap(_last_of, hosts, examination.desired.values(), [program.build().digest] * len(hosts))
    examination.findings = {host.name: found for host, found in zip(hosts, answers, strict=True)}
    return examination


def _last_of(host: Host, desired: DesiredState, built: str) -> list[Finding]:
    if not host.connected:
        why = progress(host.state).hosts[host.name].lost or "could not connect"
        return [unreached(host.name, why, tried(host))]
    try:
        with waiting_for(host, "reading the agent's verdict"):
            return report.findings(host.name, desired, read_verdict(host), built, time.time())
    except Exception as error:
        return [unreached(host.name, in_words(error), tried(host))]
