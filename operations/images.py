"""Container images, by digest. A tag is resolved once, and then every node pulls the same digest.

The registry or the inventory says which digest a tag has, never a node. The controller asks the registry; where it has
no way there, each node asks for itself, with the same lines of Python: the engine's `manifest inspect` ignores the
certificates and credentials that it would pull with.
"""

from inspect import signature
from typing import Any, Literal

from pyinfra.api import FunctionCommand, Host, QuoteString, State, StringCommand, operation
from pyinfra.context import host

from shakedown.facts.images import ImageDigests
from shakedown.facts.settings import Contents
from shakedown.operations import atomic
from shakedown.operations.commands import Commands, refuse, refused, verify
from shakedown.operations.registries import Wish, fetch, sources_of
from shakedown.state.images import Reference, parse

CERTIFICATES = "/etc/docker/certs.d"


@operation()
def pull(
    reference: str,
    engine: Literal["docker", "podman"] = "docker",
    insecure: bool = False,
    ca_file: str | None = None,
    username: str | None = None,
    password_file: str | None = None,
    password_env: str | None = None,
    size_bytes: int | None = None,
    tries: int = 3,
    timeout_s: int = 7200,
    stall_s: int = 300,
    at_once: int | None = None,
    mirror: dict[str, Any] | None = None,
) -> Commands:
    """
    Have an image in the engine's store, under its digest and its tag. One that is there is not asked for again.

    + reference: ``name:tag``, ``name@sha256:...`` or ``name:tag@sha256:...``
    + engine: ``docker`` or ``podman``
    + insecure: the registry has no TLS, or a certificate that no authority signed
    + ca_file: the authority that signed the registry's certificate, PEM, on the controller
    + username: who logs in
    + password_file: the password on the controller, readable by its owner only
    + password_env: or the controller's environment variable that holds it
    + size_bytes: of the unpacked image, for the room that has to be free
    + tries: pulls until a connection that breaks is given up
    + timeout_s: seconds for all of them
    + stall_s: seconds without any sign of progress that count as a broken connection
    + at_once: hosts of a run that pull from one registry at a time; None: all
    + mirror: where it is pulled from instead: ``address`` (host, port and a prefix), and as for the registry
      ``insecure``, ``ca_file``, ``username``, ``password_file``, ``password_env``; the registry where it is silent

    **Example:**

    .. code:: python

        from shakedown.operations import images
        images.pull(name="The training image", reference="rocm/megatron-lm:v25.5_py310")
    """
    image = parse(reference)
    wanted = image.digest
    names = [f"{name}:{image.tag}" for name in image.names(engine)] if image.tag else []
    here = host.get_fact(ImageDigests, references=[*names, *([image.pinned(wanted)] if wanted else [])], engine=engine)
    stored = next((name for name in names if name in here), None)
    tagged = here[stored] if stored else []
    if (image.tag is None or (wanted in tagged if wanted else stored)) and here:
        host.noop(f"{reference} is there ({', '.join(tagged) or wanted or 'built here'})")
        return
    if wanted and image.pinned(wanted) in here:
        yield StringCommand(engine, "tag", QuoteString(image.pinned(wanted)), QuoteString(image.tagged))
        yield verify(lambda: _lacking(image, wanted, engine))
        return
    access = {"insecure": insecure, "ca_file": ca_file, "username": username}
    access |= {"password_file": password_file, "password_env": password_env}
    try:
        sources = sources_of(image, access, mirror)
    except (OSError, ValueError) as error:
        yield refuse(f"{reference}: {error}")
        return
    yield from _fetch(Wish(image, sources, engine, size_bytes, tries, timeout_s, stall_s, at_once))


def pullable(state: State, host: Host, **arguments: Any) -> bool:
    """Say whether the registry has an image, lets this user in, and the node has the room. Nothing is pulled."""
    given = {name: one.default for name, one in signature(pull._inner).parameters.items()} | arguments
    image = parse(given["reference"])
    try:
        sources = sources_of(image, given, given["mirror"])
    except (OSError, ValueError) as error:
        return refused(state, host, f"{given['reference']}: {error}")
    limits = {name: given[name] for name in ("engine", "size_bytes", "tries", "timeout_s", "stall_s", "at_once")}
    return fetch(state, host, Wish(image, sources, **limits), looks=True)


def _fetch(wish: Wish) -> Commands:
    for source in wish.sources if wish.engine == "docker" else ():
        # docker trusts a registry's authority by a file of its own, beside any other of that registry.
        path = f"{CERTIFICATES}/{source.registry}/shakedown.crt"
        lines = [atomic.HEADER, *(source.ca or "").splitlines()]
        if source.ca and host.get_fact(Contents, patterns=[path]).get(path) != lines:
            yield atomic.remember(f"certificate.{source.registry}", [atomic.Step("created", path)])
            yield atomic.write(path, lines)

    def pulled(state: State, host: Host) -> bool:  # no argument of the command: pyinfra can only print plain values
        return fetch(state, host, wish)

    yield FunctionCommand(pulled, (), {})


def _lacking(image: Reference, digest: str, engine: str) -> str | None:
    now = host.get_fact(ImageDigests, references=[image.tagged], engine=engine).get(image.tagged, [])
    return None if digest in now else f"{image.tagged} is {', '.join(now) or 'not there'} after tagging {digest}"
