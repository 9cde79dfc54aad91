"""What a log says of the job it belongs to: sizes, and how many nodes there were.

The sources: Megatron-LM's list of arguments and its line `using world size`, torchrun's options where a script shows
its command, and RCCL's lines (NCCL_DEBUG=INFO), which name the host and, per communicator, ranks and nodes.
"""

import math
import re
from collections.abc import Mapping, Sequence

from shakedown.common.data import pattern_texts
from shakedown.common.expression import Expression
from shakedown.common.frozen import Frozen
from shakedown.common.text import strip_escapes
from shakedown.logs.lines import as_text
from shakedown.logs.metrics import PRECISIONS

RANKS_PER_NODE = 8  # one for each GPU of an Instinct board: more ranks are not of one node
_COUNTED = (
    *("world_size", "ranks_per_node", "seq_length", "global_batch", "nodes"),
    *("layers", "hidden_size", "ffn_hidden_size", "num_experts", "vocabulary", "loaded", "saved", "exited"),
    *("log_interval", "train_iters", "steps", "skipped"),
)
_MAX_HOSTS = 4096
_MAX_COMPONENTS = 64
_MAX_LINE = 4096  # characters that are looked at
_MAX_LINES = 200_000  # that may say something: a job says what it is at its beginning

MARKS = (
    *("....", "world size", "nnodes", "nproc", "node_rank", "nRanks ", "AMD Instinct MI"),
    *("shakedown image: ", "loaded checkpoint from ", "saved checkpoint from ", "exiting program a", "| rl/"),
    ", skipped=",
)
"""A line that says something holds one of these, but for the host that every line of RCCL names."""
_RCCL = b" NCCL "
_MAX_BEGINNINGS = 65536  # of RCCL's lines, that are known: one for each thread that prints some
_FORMS = {name: Expression(text) for name, text in pattern_texts("shakedown.logs", "job_shape.toml").items()}
_NAMES = {"global_batch_size": "global_batch", "padded_vocab_size": "vocabulary", "num_layers": "layers"}
_HOST = re.compile(rb"(?:^|[\s\]:])([A-Za-z0-9][A-Za-z0-9._-]{0,252}):\d{1,8}:\d{1,8} \[\d{1,4}\]\Z")


class JobShape(Frozen):
    """What one log says, or several. None: nothing."""

    world_size: int | None = None
    ranks_per_node: int | None = None
    seq_length: int | None = None
    global_batch: int | None = None
    nodes: int | None = None  # at least, as torchrun's options or a communicator of RCCL's count them
    whole: bool = False  # `nodes` is of the whole job: no other number follows from its ranks
    hosts: frozenset[str] = frozenset()  # that RCCL's lines name
    layers: int | None = None
    hidden_size: int | None = None
    ffn_hidden_size: int | None = None
    num_experts: int | None = None
    vocabulary: int | None = None  # entries, with those that fill it up
    precision: str | None = None  # the fastest that it computes in, of peaks.PRECISIONS
    gpu: str | None = None  # the model, as profiles name it
    loaded: int | None = None  # iteration of the checkpoint that the run goes on from
    in_image: frozenset[tuple[str, str]] = frozenset()  # component and version, as the nodes' containers say
    saved: int | None = None  # iteration of the last checkpoint that the run wrote
    reinforced: bool = False  # whether it learns by reinforcement: its loss is no cross-entropy
    exited: int | None = None  # iteration after which the program was told to exit; 0: after a time
    log_interval: int | None = None  # iterations of one line
    train_iters: int | None = None
    steps: int | None = None  # that DeepSpeed has counted, and of them
    skipped: int | None = None

    @property
    def token_flops(self) -> float | None:
        """Return the operations that training on a token takes at least: forward and back through attention (with one
        head of keys), a plain MLP and the output layer, 4 for each weight. Of experts none is counted."""
        if self.layers is None or self.hidden_size is None:
            return None
        mlp = 0 if self.num_experts else 2 * self.hidden_size * (self.ffn_hidden_size or 0)
        weights = self.layers * (2 * self.hidden_size**2 + mlp) + self.hidden_size * (self.vocabulary or 0)
        return 4.0 * weights

    @property
    def states_nodes(self) -> bool:
        """Return whether anything in the logs says how many nodes the job had."""
        return bool(self.world_size or self.nodes or self.hosts)

    def node_count(self, logs: int = 1) -> int | None:
        """Return how many nodes the job had, seen from that many logs: as it states itself, and as its hosts and ranks
        show. None: its ranks are more than one, and nothing states how many of them a node has."""
        least = max(logs, self.nodes or 1, len(self.hosts))
        if self.world_size is None or self.world_size <= least or (self.whole and self.ranks_per_node is None):
            return least
        if self.ranks_per_node is not None:
            return max(least, math.ceil(self.world_size / self.ranks_per_node))
        return least if self.world_size <= least * RANKS_PER_NODE else None


class JobShapeReader:
    """Collects it from the lines of a log."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}
        self._counted: set[int] = set()  # ranks of the communicators whose nodes are known
        self._hosts: set[str] = set()
        self._precisions: set[str] = set()
        self._gpus: set[str] = set()
        self._in_image: set[tuple[str, str]] = set()
        self._beginnings: dict[bytes, bool] = {}  # of lines of RCCL -> whether they name a host
        self._looked_at = 0
        self._reinforced = False

    def line(self, line: str) -> None:
        """Read a line that may hold one of MARKS."""
        if self._looked_at < _MAX_LINES and any(mark in line for mark in MARKS):
            self._looked_at += 1
            self._line(strip_escapes(line[:_MAX_LINE]))

    def hosts(self, block: bytes) -> None:
        """Collect the hosts that RCCL's lines in a block name. There may be millions of such lines, and those of one
        thread begin alike: each beginning is read once."""
        if self._looked_at >= _MAX_LINES:
            return
        pieces = block.split(_RCCL)[:-1]
        if self._beginnings.keys() >= {piece[piece.rfind(b"\n") + 1 :] for piece in pieces}:
            self._looked_at += len(pieces)
            return
        start, at = 0, block.find(_RCCL)
        while at >= 0 and self._looked_at < _MAX_LINES:
            start = block.rfind(b"\n", start, at) + 1 or start
            if at - start <= _MAX_LINE and self._names_host(block[start:at]):
                self._looked_at += 1
                at = block.find(b"\n", at)  # the rest of the line says no more of it
            else:
                at += 1
            at = block.find(_RCCL, at) if at >= 0 else -1

    def shape(self) -> JobShape:
        """Return the shape; of sizes that differ the largest, since a communicator may be a part of the job."""
        whole = "nnodes" in self._found or self._found.get("world_size") in self._counted
        numbers = {name: number for name, number in self._found.items() if name != "nnodes"}
        gpu = next(iter(self._gpus)) if len(self._gpus) == 1 else None
        precision = next((name for name in PRECISIONS if name in self._precisions), None)
        return JobShape(
            **numbers,
            whole=whole,
            hosts=frozenset(self._hosts),
            precision=precision,
            gpu=gpu,
            reinforced=self._reinforced,
            in_image=frozenset(self._in_image),
        )

    def _line(self, line: str) -> None:
        if found := _FORMS["argument"].search(line):
            self._note(_NAMES.get(found[1], found[1]), int(found[2]))
        if (found := _FORMS["precision"].search(line)) and found[2] not in ("None", "False"):
            self._precisions.add(found[1])
        if found := _FORMS["gpu"].search(line):
            self._gpus.add(found[1].lower())
        for name in ("world_size", "loaded", "saved"):
            if found := _FORMS[name].search(line):
                self._note(name, int(found[1]))
        for option, number in _FORMS["option"].pattern.findall(line):
            name = option.replace("-", "_")
            if name == "node_rank":
                if int(number):
                    self._note("nodes", int(number) + 1)
            else:
                self._note(name if name == "nnodes" else "ranks_per_node", int(number))
                if name == "nnodes":
                    self._note("nodes", int(number))
        self._reinforced = self._reinforced or _FORMS["reinforced"].search(line) is not None
        if (found := _FORMS["in_image"].match(line)) and len(self._in_image) < _MAX_COMPONENTS:
            self._in_image.add((found[1], found[2]))
        if found := _FORMS["steps"].search(line):
            self._note("steps", int(found[1]))
            self._note("skipped", int(found[2]))
        if found := _FORMS["exited"].search(line):
            self._found["exited"] = int(found[1] or 0)
        if " NCCL " in line and (found := _FORMS["ranks"].search(line)):
            self._note("world_size", int(found[1]))
            self._note("nodes", int(found[2]))
            self._counted.add(int(found[1]))

    def _names_host(self, beginning: bytes) -> bool:
        if (known := self._beginnings.get(beginning)) is not None:
            return known
        found = _HOST.search(strip_escapes(as_text(beginning)).encode() if b"\x1b" in beginning else beginning)
        if len(self._beginnings) < _MAX_BEGINNINGS:
            self._beginnings[beginning] = found is not None
        if found and not found[1].isdigit() and len(self._hosts) < _MAX_HOSTS:  # digits alone are a time
            self._hosts.add(found[1].decode())
        return found is not None

    def _note(self, name: str, number: int) -> None:
        if number > 0:
            self._found[name] = max(number, self._found.get(name, 0))


def shape_of(shapes: Mapping[str, JobShape] | Sequence[JobShape]) -> JobShape:
    """Join the shapes of several logs of one job."""
    shapes = list(shapes.values()) if isinstance(shapes, Mapping) else list(shapes)
    numbers = {
        name: max(values)
        for name in _COUNTED
        if (values := [value for shape in shapes if (value := getattr(shape, name)) is not None])
    }
    size, nodes = numbers.get("world_size"), numbers.get("nodes")
    whole = any(shape.whole and shape.nodes == nodes and shape.world_size in (None, size) for shape in shapes)
    gpus = {shape.gpu for shape in shapes if shape.gpu}
    return JobShape(
        **numbers,
        whole=whole,
        hosts=frozenset().union(*(shape.hosts for shape in shapes)),
        precision=next((name for name in PRECISIONS if any(shape.precision == name for shape in shapes)), None),
        gpu=gpus.pop() if len(gpus) == 1 else None,
        reinforced=any(shape.reinforced for shape in shapes),
        in_image=frozenset().union(*(shape.in_image for shape in shapes)),
    )
