"""Recipes: training jobs as data, one file per family under `recipes/`. A family is a program with documented options;
a recipe names values of some of them, with expected figures. Adding one needs no code."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from shakedown.common.data import read_toml
from shakedown.common.section import Section
from shakedown.desired.layers import Layer, merge
from shakedown.desired.values import parse_size
from shakedown.recipes.configurations import entries
from shakedown.recipes.documents import Document, documents
from shakedown.recipes.option import Option, Text, Value


class Roles(Section):
    """Which option carries what a plan reckons with. A role without an option is 1 (or not known)."""

    micro_batch: Text
    global_batch: Text
    seq_length: Text
    iterations: Text
    tensor_parallel: Text | None = None
    pipeline_parallel: Text | None = None
    context_parallel: Text | None = None
    expert_parallel: Text | None = None
    layers: Text | None = None
    heads: Text | None = None


class Launch(Section):
    """The program's own variables for what the plan derives; None: the program has none for it."""

    master_address: Text | None = None
    master_port: Text | None = None
    nodes: Text | None = None
    node_rank: Text | None = None
    ranks: Text | None = None  # processes on a node
    visible_devices: list[Text] = []  # set when fewer ranks are wanted than there are GPUs
    log_dir: Text | None = None
    log: Text | None = None  # the log in log_dir
    cache_dir: Text | None = None  # the option of a cache that all nodes of a run with real data must share
    real_data: dict[Text, Value] = {}  # the options' values with which that is so
    hf_token: Text | None = None

    def variables(self) -> set[str]:
        """Return the variables that only a plan sets."""
        derived = (self.master_address, self.master_port, self.nodes, self.node_rank, self.ranks, self.log_dir)
        return {name for name in derived if name is not None}


class Rule(Section):
    """A rule of options. It holds where they have the values of `when`, all of `given` and none of `absent` are given.
    Then `require` wants these values (none given is set), `needs` these given, `excludes` none; one of `at_least` is
    no less than the other option or number, one of `below` is less. No `variables` of the job may have these values."""

    when: dict[Text, Value] = {}
    given: list[Text] = []
    absent: list[Text] = []
    require: dict[Text, Value] = {}
    needs: list[Text] = []
    excludes: list[Text] = []
    at_least: dict[Text, int | Text] = {}
    below: dict[Text, int | Text] = {}
    variables: dict[Text, Text] = {}
    why: Text

    def names(self) -> list[str]:
        """Return the options that are compared."""
        pairs = [*self.at_least.items(), *self.below.items()]
        return [name for pair in pairs for name in pair if isinstance(name, str)]


class Conditional(Section):
    """Environment and arguments that go with some values of the options; in an argument, {NAME} is an option's."""

    when: dict[Text, Value] = {}
    given: list[Text] = []
    environment: dict[Text, str] = {}
    arguments: list[Text] = []
    logs: list[Text] = []  # further files of the run's folder that are evidence then
    passes: list[Text] = []  # arguments that the program's script itself passes then


class Tokenizer(Section):
    """What the program downloads from Hugging Face when nothing is there."""

    option: Text | None = None  # the option that names another, or a folder
    model: Text  # without it
    fixed: dict[Text, Text] = {}  # image -> what the program of that image downloads, whatever the option says


class Model(Section):
    """What is known of a model's size, for the values of `when`."""

    when: dict[Text, Value] = {}
    parameters: float
    layers: int | None = None
    heads: int | None = None
    sharded: dict[Text, Value] = {}  # the options' values with which everything is sharded over data parallel ranks
    expert_parallel: int = 1
    expert_parameters: float = 0.0  # of `parameters`, those that are spread over expert parallel ranks


class Container(Section):
    """The documented container options."""

    image: Text | None = None  # documented; the desired state decides
    versions: dict[Text, Text] = {}  # what the document says is in it: compared with what the image's labels say
    devices: list[Text] = []
    optional_devices: list[Text] = []  # given to the container where the node has them
    network: Text = "host"
    ipc: Text = "host"
    groups: list[Text] = []
    capabilities: list[Text] = []
    security: list[Text] = []
    ulimits: dict[Text, Text] = {}
    shm_size: Text | None = None
    privileged: bool = False  # as documented; used only where the desired state asks for it


class ProgramLimits(Section):
    """Where the program itself ends."""

    max_nodes: int | None = None
    gpus: list[Text] = []  # profiles that it supports; empty: any
    partial_gpus: list[Text] = []  # profiles that it supports in part: a warning in the plan
    ranks_per_node: int | None = None  # the only number that works
    why: Text


class Caution(Section):
    """A variable that helps on the family's GPUs and hurts on others (profiles)."""

    variable: Text
    value: Text
    gpus: list[Text]
    why: Text


class Expect(Section):
    """Figures for the recipe's own option values on these GPU models and this number of nodes."""

    gpus: list[Text]
    nodes: int
    figures: dict[Text, float]
    source: Text  # of documents.toml


class Entry(Section):
    """One named recipe of a family."""

    description: Text
    document: Text | None = None  # of documents.toml, when it is another than the family's
    nodes: int | None = None  # documented for this many; another number is noted in the plan
    ranks_per_node: int | None = None  # documented, over the family's
    options: dict[Text, Value] = {}
    corrected: dict[Text, Text] = {}  # options whose documented value cannot work -> what it is, and why not
    expect: list[Expect] = []
    experiment: Text | None = None  # of the family's configurations: the GPU's file has the values (fitting.py)
    facts: dict[Text, Value] = {}  # of that file and GPU, for `when`: the family's `facts`
    origin: dict[Text, Text] = {}  # option -> where its value comes from, for the plan
    sent: dict[Text, str] = {}  # option -> text of a file of the controller that goes with the job in its place


class Family(Section):
    """One program with its options, and the recipes that use it."""

    description: Text
    document: Text  # of documents.toml
    runtimes: Annotated[list[Literal["container", "process"]], Field(min_length=1)]  # the first is the usual one
    # Who starts a node's ranks: a script with torchrun, torchrun around the program, one python that starts what it
    # needs, or a program that is left alone.
    launcher: Literal["script", "torchrun", "python", "program"]
    parser: Literal["training", "mad"] = "training"  # what reads the job's logs: gates/parsers.py
    command: Annotated[list[Text], Field(min_length=1)]  # {run_dir}: the run's folder, as the program sees it
    arguments: Literal["program", "torchrun"] = "program"  # whose command line takes the options that are arguments
    workdir: Text | None = None
    programs: list[Text] = []  # of programs/: what each version that was read takes. Any of it may be an option
    images: dict[Text, Text] = {}  # documented image -> the program that is in it
    script: Text | None = None  # of these programs
    upload: list[Text] = []
    cleanup: list[Text] = []  # process: removes what the program started apart from its own processes
    modules: list[Text] = []  # process: what must be importable on the node
    ranks_per_node: int | None = None  # unless asked for; None: one per GPU
    document_gpus: int = 8  # of a node in the document: its batches were chosen for them
    host_bytes_per_rank: int | None = None  # process memory of one rank, measured
    options: dict[Text, Option]
    shorthand: dict[Text, dict[Text, dict[Text, Value]]] = {}  # name -> value -> the options it stands for
    refused: dict[Text, Text] = {}  # option -> why there is none
    configurations: bool = False  # NAME.toml has the values of its recipes, for each GPU
    facts: list[Text] = []  # that `when` may name beside options: set with the values of the GPU's file
    in_file: bool = False  # a configuration file has what no option names, and its keys have no dashes
    names: dict[Text, Text] = {}  # argument of the program -> the option that carries it
    roles: Roles | None = None  # None: the program chooses its sizes, and each node runs it alone
    launch: Launch = Launch()
    rules: list[Rule] = []
    limits: ProgramLimits | None = None
    container: Container = Container()
    environment: dict[Text, str] = {}
    conditional: list[Conditional] = []
    cautions: list[Caution] = []
    models: list[Model] = []
    tokenizer: Tokenizer | None = None
    metrics: list[Text] = []  # recorded; judged where a figure is expected
    recipes: dict[Text, Entry]

    @property
    def role_options(self) -> dict[str, str]:
        """role -> option, for the roles that there are."""
        return self.roles.model_dump(exclude_none=True) if self.roles else {}

    @property
    def batch_option(self) -> str:
        """The option of the global batch; empty: there is none."""
        return self.role_options.get("global_batch", "")

    @field_validator("host_bytes_per_rank", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)


class Recipe(Section):
    """A recipe with its family."""

    name: str
    family_name: str
    family: Family
    entry: Entry

    @property
    def ranks_per_node(self) -> int | None:
        """As documented; None: one for each GPU."""
        return self.entry.ranks_per_node or self.family.ranks_per_node

    @property
    def document(self) -> Document:
        return documents()[self.entry.document or self.family.document]

    @property
    def not_alone(self) -> str:
        """What was expected of a recipe for single-node jobs; empty: this is one."""
        nodes = self.entry.nodes
        if nodes in (None, 1):
            return ""
        return f"a recipe for one node: {self.document} describes {self.name} for {nodes} nodes"


@cache
def families() -> dict[str, Family]:
    """Every family that is shipped, by the name of its file."""
    folder = files("shakedown.recipes") / "families"
    names = sorted(path.name[:-5] for path in folder.iterdir() if path.name.endswith(".toml"))
    return {name: Family.model_validate(_document(name)) for name in names}


def _document(name: str) -> dict[str, Any]:
    """Return a family's file; where it says `like`, over that other family's without its recipes and models."""
    own = read_toml("shakedown.recipes", f"families/{name}.toml")
    if own.get("configurations"):
        own["recipes"] = entries(name)
    if "like" not in own:
        return own
    base = {key: value for key, value in _document(own.pop("like")).items() if key not in ("recipes", "models")}
    for key in ("rules", "conditional"):
        own[key] = [*base.get(key, []), *own.get(key, [])]
    return merge([Layer("like", base), Layer(name, own)]).values


@cache
def recipes() -> dict[str, Recipe]:
    """Every recipe that is shipped, by name."""
    return {
        name: Recipe(name=name, family_name=family_name, family=family, entry=entry)
        for family_name, family in families().items()
        for name, entry in family.recipes.items()
    }
