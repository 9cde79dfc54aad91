"""The agent's stage: have it on the nodes, or take it away."""

from __future__ import annotations

from pyinfra.context import host as current_host

from shakedown.agent import program
from shakedown.agent.compile import compiled
from shakedown.desired.models import Agent
from shakedown.operations import agent
from shakedown.runner.session import session


def install() -> None:
    """Have the agent on the current host with its desired state, or take it away where `agent.state` says so. Whether
    the node is in its desired state now does not matter: the agent tells."""
    current = session()
    name = current_host.name
    state = current.examination.states.get(name)
    if state is None:
        current.fail(current.host(name), "could not be examined", current.examination.blockers(name))
        return
    desired = current.examination.desired[name]
    wanted = desired.agent or Agent()
    if wanted.state == "absent":
        agent.absent(name="No agent")
        return
    document = compiled(name, desired, state.account, program.build().digest)
    agent.present(name="Check by a timer", document=document)
