"""The state of a node, read in one round trip by the probe of `shakedown/node`."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from paramiko import SSHException
from pydantic import ValidationError
from pyinfra.api import FactProcessError, Host, State, StringCommand
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import ctx_config

from shakedown.common.text import LONGEST, load_sound
from shakedown.facts.base import Fact
from shakedown.node import sign, sysctl
from shakedown.node.book import RECORD
from shakedown.state import node as contract
from shakedown.transport import bundle

SIGNED = "shakedown_signed"  # in a host's connector_data
SIGNATURE = 64 << 10  # characters of a signature's line
DOCUMENT = 16 << 20  # characters of a node state; that of a large node has some 200,000
_MARKER = "shakedown_bundle"
# "exit <code>" is what the launching shell says of a probe that was ended.
_WORDS = {
    "exit 124": "the probe did not end in time",
    "exit 137": "the probe did not end in time and was killed",
}


def parse(lines: list[str]) -> dict[str, Any]:
    """Find the document among the lines of output, whatever a shell's start-up file printed before it."""
    for line in reversed(lines):
        if line.startswith("{"):
            try:
                document: dict[str, Any] = load_sound(line, DOCUMENT)
            except ValueError as error:
                raise FactProcessError(f"the probe's output is cut short or garbled: {error}") from None
            return document
    raise FactProcessError(f"the probe printed no document: {' '.join(lines)[:200]!r}")


def state_of(lines: list[str], install: Callable[[], list[str]]) -> contract.NodeState:
    """Return the state in the output, as `_read` finds it; pydantic reads the text of a plain document alone, in half
    the time. Raise FactProcessError, or ValidationError for a document of another shape."""
    text = next((line for line in reversed(lines) if line.startswith("{")), "")
    if len(text) <= LONGEST:
        odd: list[Any] = []
        with suppress(ValidationError):  # what is wrong, and whether it can be cleaned, is found below
            state = contract.shared(contract.NodeState.model_validate_json(text, strict=False), odd)
            if not odd:
                return state
    return contract.shared(contract.NodeState.model_validate(_read(lines, install), strict=False))


def _read(lines: list[str], install: Callable[[], list[str]]) -> dict[str, Any]:
    """Read the node state in the launching command's output, or in that of `install` where the probe was missing."""
    document = parse(lines)
    if document.get(_MARKER) == "missing":
        lines = install()
        document = parse(lines)
    if _MARKER in document:
        raise FactProcessError(f"no node state: {_in_words(str(document[_MARKER]), lines)}")
    return document


def signed(lines: list[str]) -> dict[str, Any]:
    """Return the document as the node printed it, with the signature in front of it."""
    found = next((line for line in lines if line.startswith('{"' + sign.MARK)), "")
    try:
        answer = load_sound(found, SIGNATURE).get(sign.MARK) if found else None
    except ValueError:
        answer = None
    text = next(line for line in reversed(lines) if line.startswith("{"))
    return {"document": text, **(answer if isinstance(answer, dict) else {"reason": "its answer has no signature"})}


def _in_words(problem: str, lines: list[str]) -> str:
    """Return why there is no document, with the last words of a probe that ended alone."""
    if problem in _WORDS or not problem.startswith("exit "):
        return _WORDS.get(problem, f"the node {problem}")
    return f"the probe ended with {problem}: {' '.join(lines[-2:-1])}"


class NodeState(Fact[dict[str, Any]]):
    """
    Returns the whole state of a node as a dictionary, the shape of which is ``shakedown.state.node.NodeState``.

    One command in the steady state. A node that has not seen this version of the probe gets it first, over the same
    connection, with a second command. A node that cannot be read fails alone, with a message. `sysctls`: keys of
    sysctl(8) to be read besides those that always are, "drives" for the health of the
    drives, and "neighbours" for those of LLDP.

    .. code:: python

        from shakedown.state.node import NodeState as State

        state = State.model_validate(host.get_fact(NodeState))
        if state.numa.balancing.running == "1":
            ...
    """

    host: Host | None = None
    requested: tuple[str, ...] = ()
    question = ""  # of `shakedown.node.sign`

    def check_preconditions(self, state: State, host: Host) -> str | None:
        # The one moment at which pyinfra tells a fact whose it is; context.host is not set for every caller.
        self.host = host
        return None

    def command(self, timeout: int = 60, sysctls: Sequence[str] = (), record: bool = False) -> str:
        more = [RECORD] if record else [self.question] if self.question else []
        self.requested = (*more, *sysctl.question(sysctls))
        return bundle.launch_command(timeout, self.requested)

    def process(self, output: list[str]) -> dict[str, Any]:
        return _read(output, lambda: self._install(_connector_arguments()))

    def _install(self, arguments: dict[str, Any]) -> list[str]:
        """Send the bundle on standard input and run the probe; returns its output."""
        if self.host is None:
            raise FactProcessError("no node state: the probe is not on the node, and there is no connection to it")
        try:
            status, output = self.host.run_shell_command(
                StringCommand(bundle.install_command(requested=self.requested)),
                **{**arguments, "_stdin": bundle.build().archive.splitlines()},
            )
        except (OSError, EOFError, SSHException, PyinfraError) as error:
            raise FactProcessError(f"the probe could not be sent: {error}") from error
        if not status:
            raise FactProcessError(f"the probe could not be sent: {output.stderr[-300:] or output.stdout[-300:]}")
        return output.stdout_lines


class Subject(NodeState):
    """
    Returns one subject of the node state, read as `NodeState` reads the whole.

    + subject: ``kfd``, ``numa``, ``rdma``, ``verbs`` or another field of ``shakedown.state.node.NodeState``

    .. code:: python

        {"gpus": 8, "gpu_nodes": 8, "cpu_nodes": 2}
    """

    subject = ""

    def command(self, subject: str, timeout: int = 60) -> str:  # type: ignore[override]
        self.subject = subject
        return super().command(timeout)

    def process(self, output: list[str]) -> Any:
        state = super().process(output)
        if self.subject not in state:
            raise FactProcessError(
                f"no subject of a node state: {self.subject!r}; there are {', '.join(sorted(state))}"
            )
        return state[self.subject]


def read_node(
    host: Host,
    sysctls: Sequence[str] = (),
    timeout: int = 60,
    answers: dict[str, Any] | None = None,
    question: str = "",
) -> contract.NodeState:
    """Read the state of a host at hand, with the host's own connector arguments (_sudo and its like). Unlike get_fact,
    raise FactProcessError with the reason, ValidationError, or what the connection raises. `answers` takes what the
    node answered the probe, raw. `question`: to have the state signed, which answers are not; the signature is then in
    the host's connector_data."""
    fact = NodeState()
    fact.host, fact.question = host, question
    # The probe bounds itself; this is for a node that stops answering altogether.
    connector = {**connector_arguments(host), "_timeout": timeout + 15}
    status, output = host.run_shell_command(
        StringCommand(fact.command(timeout, sysctls, answers is not None)), **connector
    )
    if not status:
        raise FactProcessError(f"the probe did not run: {(output.stderr or output.stdout)[-300:].strip()}")
    lines = [output.stdout_lines]

    def install() -> list[str]:
        lines.append(fact._install(connector))
        return lines[-1]

    if answers is None:
        state = state_of(lines[0], install)
        if question:
            host.connector_data[SIGNED] = signed(lines[-1])
        return state
    document = _read(lines[0], install)
    answers.update(document["answers"])
    return contract.NodeState.model_validate(document["state"], strict=False)


_GET_FACT = ("_get_fact", "pyinfra.api.facts")


_of_config: WeakKeyDictionary[State, dict[str, Any]] = WeakKeyDictionary()


def connector_arguments(host: Host) -> dict[str, Any]:
    """Return the host's own connector arguments. pyinfra looks for thirty of them in every layer of a host's data;
    outside of a deploy a host that names none has those of the configuration, as every other."""
    named = any(key.startswith("_") for key in host.data.dict()) or host.current_deploy_kwargs or ctx_config.isset()
    if not named and host.state in _of_config:
        return _of_config[host.state]
    arguments, _ = pop_global_arguments(host.state, host, {})
    connector = {key: value for key, value in arguments.items() if key in CONNECTOR_ARGUMENT_KEYS}
    if not named:
        _of_config[host.state] = connector
    return connector


def _connector_arguments() -> dict[str, Any]:
    """_sudo and its like, as the fact's own command ran with.

    pyinfra hands them to the connector and not to the fact, and the bundle has to land in the cache of the same user.
    That takes a second command, since a command line has no room for it, and a fact may name but one. So they are taken
    from the caller of `process`, `pyinfra.api.facts._get_fact`; tests/unit/test_fact_node.py fails when another pyinfra
    keeps them elsewhere. Deploys and `shakedown` do not come by here: `read_node` asks the host itself.
    """
    frame = inspect.currentframe()
    while frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != _GET_FACT:
        frame = frame.f_back
    arguments = frame.f_locals.get("executor_kwargs", {}) if frame else {}
    return {key: value for key, value in arguments.items() if key in CONNECTOR_ARGUMENT_KEYS}
