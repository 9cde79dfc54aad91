"""Programs from source, and data sets."""

from typing import Annotated

from pydantic import Field, field_validator

from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Sha256
from shakedown.desired.names import Text
from shakedown.desired.sizes import parse_size


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
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] = key(
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
    size_bytes: int | None = key(None, "its size; None: as the server says", "2G", unit="bytes")

    @field_validator("size_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)


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
