"""Container images, and where they come from."""

from typing import Annotated

from pydantic import Field, field_validator

from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Positive
from shakedown.desired.names import Text
from shakedown.desired.sizes import parse_size
from shakedown.state.images import parse


class Image(Section):
    """A container image: `name:tag`, `name@sha256:...` or `name:tag@sha256:...`."""

    reference: Text = key(
        ..., 'the image; a site writes images = {"megatron": "name:tag"}', "rocm/megatron-lm:v25.5_py310"
    )
    insecure: bool = key(
        False, "a registry without TLS, or with a certificate that no authority of the node has signed", True
    )
    ca_file: Text | None = key(None, "the registry's own certificate, a file on the controller", "/srv/registry/ca.crt")
    username: Text | None = key(None, "account at the registry", "robot")
    password_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone (chmod 600)", "~/.config/registry.password"
    )
    password_env: Text | None = key(
        None, "variable of the controller with the password, in place of password_file", "REGISTRY_PASSWORD"
    )
    size_bytes: int | None = key(
        None, "unpacked size, where the registry cannot be asked: disk room is checked against it", "60G", unit="bytes"
    )

    @field_validator("reference")
    @classmethod
    def _reference(cls, value: str) -> str:
        try:
            parse(value)
        except ValueError:
            raise ValueError("name:tag, name@sha256:... or name:tag@sha256:...") from None
        return value

    @field_validator("size_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)


class Mirror(Section):
    """A mirror or pull-through cache of one registry. What it gives has the digest that is wanted, or is refused."""

    address: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9._/-]+)?$")] = key(
        ..., "host[:port][/prefix]; the prefix goes in front of the image's own path", "mirror.rack7:5000/dockerhub"
    )
    insecure: bool = key(False, "without TLS, or with a certificate that no authority of the node has signed", True)
    ca_file: Text | None = key(None, "its certificate, a file on the controller", "/srv/mirror/ca.crt")
    username: Text | None = key(None, "account at the mirror", "robot")
    password_file: Text | None = key(
        None, "file of one line on the controller, for its owner alone (chmod 600)", "~/.config/mirror.password"
    )
    password_env: Text | None = key(
        None, "variable of the controller with the password, in place of password_file", "MIRROR_PASSWORD"
    )


class Pulls(Section):
    """How images come to the nodes."""

    at_once: Positive = key(8, "nodes that pull from one registry or mirror at a time", 8, unit="nodes")
    mirrors: dict[Text, Mirror] = key(
        {},
        "registry -> the site's mirror of it; the registry itself is asked where the mirror does not answer",
        {"docker.io": {"address": "mirror.rack7:5000"}},
    )
