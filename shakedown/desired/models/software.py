"""What is brought to a node: container images, programs from source, data sets."""

from typing import Annotated

from pydantic import Field, field_validator

from shakedown.common.section import Positive, Section, Text, key
from shakedown.desired.values import SIZE, Commit, Sha256
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
    size_bytes: Annotated[int | None, SIZE] = key(
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


class Packages(Section):
    """One call of pip."""

    packages: list[Text] = key([], "requirements, as pip has them", ["torch>=2.6"])
    requirements: Text | None = key(None, "a file of requirements in the checkout", "requirements.txt")
    index_url: Text | None = key(
        None,
        "the package index; None: pip's own",
        "https://download.pytorch.org/whl/rocm6.2",
        source="adaptation-guide",
    )


class Source(Section):
    """A program from source on the node."""

    url: Text = key(..., "the git repository", "https://github.com/NVIDIA/Megatron-LM.git", source="adaptation-guide")
    commit: Commit = key(
        ..., "a full hash: a branch is another one tomorrow", "151b30f68b1d7e2c28d28d37e9f9abfc1e6e6d9d"
    )
    path: Text = key(..., "the checkout, on the nodes", "/opt/megatron/Megatron-LM")
    patches: list[Text] = key([], "patches on the controller, applied in this order", ["patches/fused_softmax.patch"])
    venv: Text | None = key(
        None, "the virtual environment, on the nodes; None: nothing is installed", "/opt/megatron/venv"
    )
    python: Text = key("python3", "which python makes the virtual environment", "python3.11")
    install: list[Packages] = key(
        [],
        "calls of pip in this order: torch from ROCm's index before anything that would pull another",
        [{"packages": ["torch"], "index_url": "https://download.pytorch.org/whl/rocm6.2"}],
    )
    editable: bool = key(True, "install the checkout itself, pip install -e", False)
    modules: list[Text] = key(["torch", "megatron"], "what must be importable at the end", ["torch", "megatron"])


class DataFile(Section):
    """A file to be downloaded. Without size and checksum the server's size is all that is compared."""

    url: Text = key(..., "where the file is", "https://example.org/text_document.bin")
    sha256: Sha256 | None = key(
        None,
        "its checksum; None: what was downloaded is recorded, and only its size is compared",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    )
    size_bytes: Annotated[int | None, SIZE] = key(None, "its size; None: as the server says", "2G", unit="bytes")


class Dataset(Section):
    """A data set of recipes/datasets.toml by its name there, or one of the site's own `files`."""

    folder: Text = key(..., "where the data is, on the nodes", "/data/deepseek")
    files: list[DataFile] = key(
        [], "files of the site's own data set", [{"url": "https://example.org/text_document.bin"}]
    )
    sha256: dict[Text, Sha256] = key(
        {},
        "checksums of a shipped data set's files, by name",
        {"SlimPajama.json": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
    )
    image: Text | None = key(None, "a name in images: the program that prepares the data is in it", "megatron")
    tokenizer: Text | None = key(
        None,
        "tokenizer of data that is prepared, a Hugging Face id; None: the script's own",
        "NousResearch/Meta-Llama-3-8B",
    )
