"""What a node runs: the documents' container options and variables, and an exit code that tells the truth."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from shakedown.desired.models import Benchmark
from shakedown.jobs.launch import CONTAINER_LABEL, NodePlan
from shakedown.recipes.recipe import recipes
from tests.documents import commands, configuration, variables
from tests.plans import DIGEST, RUN_ID, rack, small, value

DOCUMENTED = commands("000_commands.txt")
SPELLINGS = {"-v": "--volume"}
SCRIPTS = files("shakedown.jobs.plan")

# What a plan adds to the documented variables, and why.
ADDED = {
    *("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "GPUS_PER_NODE", "LOG_DIR", "EXP_NAME"),  # derived
    *("TP", "PP", "CP", "MBS", "BS", "GBS", "SEQ_LENGTH", "TOTAL_ITERS", "MODEL_SIZE"),  # the script's defaults, pinned
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"),  # derived
    "NCCL_DEBUG",  # below WARN the gate on RCCL's lines would have nothing to read
    # what is looked at when the job stands still
    *(
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "TORCH_FR_BUFFER_SIZE",
        "TORCH_NCCL_DUMP_ON_TIMEOUT",
        "TORCH_INCLUDE_STACK_TRACE",
    ),
    *("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
    *("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE"),
}


def documented_options() -> dict[str, list[str]]:
    """docker run's options in the document of Megatron-LM for ROCm: option -> values; a flag has none."""
    (words,) = DOCUMENTED["docker run"]
    found: dict[str, list[str]] = {}
    rest = words[2:-1]
    while rest:
        option = SPELLINGS.get(rest[0], rest[0])
        if rest[0] in ("-it", "--privileged"):
            found[option], rest = [], rest[1:]
        else:
            found.setdefault(option, []).append(rest[1].replace("$HOME", "/root"))
            rest = rest[2:]
    return found


def options(node: NodePlan, image: str) -> dict[str, list[str]]:
    """The engine's options of a plan, up to the image."""
    words = node.command[2 : node.command.index(image)]
    found: dict[str, list[str]] = {}
    while words:
        if words[0] == "--privileged" or "=" in words[0]:
            found[words[0]], words = [], words[1:]
        else:
            found.setdefault(words[0], []).append(words[1])
            words = words[2:]
    return found


def test_the_container_has_the_documented_options() -> None:
    plan = rack("llama3.1-8b-fp8", privileged=True)
    (node,) = plan.nodes
    assert plan.image is not None
    ours, theirs = options(node, plan.image), documented_options()
    for option in ("--device", "--network", "--ipc", "--group-add", "--cap-add", "--security-opt", "--shm-size"):
        assert ours.pop(option) == theirs.pop(option)
    assert ours.pop("--privileged") == theirs.pop("--privileged") == []
    # The home and the keys of a user are documented, and not given to a container of root's: see llama3.toml.
    assert theirs.pop("--volume") == ["/root:/root", "/root/.ssh:/root/.ssh"]
    assert ours.pop("--volume") == ["{run_dir}:/shakedown", "{run_dir}/.launcher:/shakedown/.launcher:ro"]
    # A terminal and a name to come back to are for a person.
    assert set(theirs) == {"-it", "--name"}
    assert ours == {
        "--name": [f"shakedown-{RUN_ID}-0"],
        "--label": [f"{CONTAINER_LABEL}={RUN_ID}"],
        "--pull": ["never"],
        "--ulimit": ["memlock=-1:-1"],
        "--workdir": ["/workspace/Megatron-LM"],
        "--env-file": ["{run_dir}/environment"],
        "--entrypoint=": [],
    }
    assert node.command[-4:] == ["bash", "/shakedown/job.sh", "bash", "examples/llama/train_llama3.sh"]
    assert plan.image == f"rocm/megatron-lm@{DIGEST}"


def test_privileged_only_where_asked_for() -> None:
    assert "--privileged" not in rack("llama3.1-8b-fp8").nodes[0].command


@pytest.mark.parametrize("name", [title for title in DOCUMENTED if title in recipes()])
def test_the_environment_holds_the_documented_variables(name: str) -> None:
    recipe = recipes()[name]
    plan = rack(name, recipe.entry.nodes or 1)
    for node, words in zip(plan.nodes, DOCUMENTED[name], strict=True):
        wanted = variables(words)
        if "MASTER_ADDR" in wanted:
            wanted["MASTER_ADDR"] = plan.master_address
        corrected = {option: node.environment.get(option) for option in recipe.entry.corrected}
        assert {key: node.environment.get(key) for key in {**wanted, **corrected}} == wanted | corrected
        nic = {"RDMAV_DRIVERS", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_GDR_FLUSH_DISABLE", "NCCL_IB_ROCE_VERSION_NUM"}
        nic |= {"NCCL_CUMEM_ENABLE"} if len(plan.nodes) > 1 else set()
        exports = set(recipe.family.environment) | {"CUDA_DEVICE_MAX_CONNECTIONS", "SEQ_PARALLEL"}
        assert set(node.environment) - set(wanted) <= ADDED | exports | nic


def test_fsdp_leaves_the_hardware_queues_alone() -> None:
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in rack("llama3-70b-bf16-fsdp").nodes[0].environment
    assert rack("llama3.1-8b-bf16").nodes[0].environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"


def test_the_provider_library_is_mounted_as_in_document_001_and_copied_in() -> None:
    config = configuration("mi3xx_megatron_llama_distributed.json")["config"]["container_config"]
    (library,) = [pair for pair in config["volume_dict"].items() if "libbnxt_re" in pair[0]]
    node = rack("llama3.1-8b-fp8-2nodes", 2).nodes[1]
    assert f"type=bind,source={library[0]},target={library[1]}" in value(node, "--mount")
    place = node.command.index("--copy")
    assert node.command[place + 1 : place + 3] == [library[1], library[1].removesuffix(".host")]
    assert "type=bind,source=/etc/libibverbs.d,target=/etc/libibverbs.d" in value(node, "--mount")


def test_before_the_job_the_image_must_list_the_devices() -> None:
    (check,) = rack("llama3.1-8b-fp8-2nodes", 2).nodes[0].setup
    assert check[:3] == ["docker", "run", "--rm"]
    assert check[-8:] == [f"bnxt_re{index}" for index in range(8)]
    assert rack("llama3.1-8b-fp8").nodes[0].setup == []


def test_secrets_stand_nowhere() -> None:
    (node,) = rack("llama3.1-8b-fp8", hf_token_file="/root/.hf_token").nodes
    assert node.secrets == ["HF_TOKEN"]
    assert "HF_TOKEN\n" in node.files["environment"]
    assert "HF_TOKEN=" not in node.model_dump_json()
    assert rack("llama3.1-8b-fp8").nodes[0].secrets == []


def test_the_sites_volumes_devices_and_shm() -> None:
    (node,) = rack("llama3.1-8b-fp8", volumes={"/data": "/data:ro"}, devices=["/dev/kfd"], shm_size="128G").nodes
    assert "/data:/data:ro" in value(node, "--volume")
    assert (value(node, "--device"), value(node, "--shm-size")) == (["/dev/kfd"], ["128G"])


ENGINE = """
echo "$@" >>"$CALLS"
case "$1" in
ps) [ -z "${PS_FAILS-}" ] || { echo 'Cannot connect to the Docker daemon' >&2; exit 1; }
    case "$*" in *status=exited*) containers=stopped;; *) containers=containers;; esac
    [ ! -f "$STATE/$containers" ] || cat "$STATE/$containers";;
rm) [ -z "${RM_FAILS-}" ] || { echo "removal is in progress" >&2; exit 1; }
    if [ -s "$STATE/next" ]; then head -n 1 "$STATE/next"; sed -i 1d "$STATE/next"; fi >"$STATE/containers";;
esac
"""


@pytest.fixture
def engine(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one of a plan's cleanup commands with an engine that has containers, by their ids."""
    tool = script(tmp_path / "docker", ENGINE)

    def run(command: list[str], containers: str = "", later: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "containers").write_text(containers)
        (tmp_path / "next").write_text(later)
        (tmp_path / "calls").write_text("")
        env = environment(tool, CALLS=str(tmp_path / "calls"), STATE=str(tmp_path), **more)
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    return run


Engine = Callable[..., subprocess.CompletedProcess[str]]


def of_this_run() -> list[list[str]]:
    benchmark = Benchmark(mode="pretrain", model="Llama-3.1-70B", precision="BF16", image="megatron", commit="1" * 40)
    smoke = benchmark.smoke().model_dump(exclude={"recipe", "image"}, exclude_unset=True)
    return [plan.nodes[0].cleanup[0] for plan in (rack("llama3.1-8b-fp8"), rack("pytorch-training", **smoke))]


def test_only_containers_of_this_run_are_removed_by_force(engine: Engine, tmp_path: Path) -> None:
    for cleanup in of_this_run():
        assert engine(cleanup, "4242\n4243\n").returncode == 0
        listing, removal, *proof = (tmp_path / "calls").read_text().splitlines()
        assert f"--filter label={CONTAINER_LABEL}={RUN_ID}" in listing
        assert f"--filter name=^/?shakedown-{RUN_ID}-0(-verbs)?$" in listing
        assert removal == "rm --force 4242 4243"
        assert proof == [listing, listing], "gone is what is absent twice"


def test_what_earlier_runs_left_is_removed_where_it_has_stopped(engine: Engine, tmp_path: Path) -> None:
    (_, cleanup) = rack("llama3.1-8b-fp8").nodes[0].cleanup
    (tmp_path / "stopped").write_text("4242\n")
    assert engine(cleanup).returncode == 0
    listing, removal = (tmp_path / "calls").read_text().splitlines()
    assert f"--filter label={CONTAINER_LABEL} --filter status=exited" in listing
    assert removal == "rm 4242", "one that runs is never forced"
    assert engine(cleanup, RM_FAILS="1").returncode == 0, "it is no fault of this run"


def test_an_engine_that_does_not_answer_has_removed_nothing(engine: Engine) -> None:
    for cleanup in of_this_run():
        ended = engine(cleanup, PS_FAILS="1")
        assert ended.returncode != 0
        assert "Cannot connect to the Docker daemon\ndocker does not say which containers there are" in ended.stderr


def test_a_container_that_stays_is_not_removed_whatever_rm_says(engine: Engine) -> None:
    for cleanup in of_this_run():
        stays = engine(cleanup, "4242\n", later="4242\n" * 20)
        assert (stays.returncode, "again, after rm --force: 4242" in stays.stderr) == (1, True)


def test_a_container_that_comes_again_is_removed_again(engine: Engine, tmp_path: Path) -> None:
    """A client that is killed while the engine makes its container leaves one that comes a moment later."""
    for cleanup in of_this_run():
        assert engine(cleanup, "4242\n", later="4243\n").returncode == 0
        assert "rm --force 4243" in (tmp_path / "calls").read_text()


def test_an_rm_that_fails_where_nothing_is_left_is_none(engine: Engine) -> None:
    """As of a container whose removal is in progress."""
    cleanup = of_this_run()[0]
    assert engine(cleanup, RM_FAILS="1").returncode == 0
    assert engine(cleanup, "4242\n", RM_FAILS="1").returncode == 1


def test_the_process_runtime_gives_torchrun_a_static_rendezvous() -> None:
    node = small(3, ranks_per_node=1, venv="/opt/venv").nodes[2]
    words = dict(zip(node.command[1:13:2], node.command[2:14:2], strict=True))
    assert node.command[0] == "/opt/venv/bin/torchrun"
    assert words == {
        "--nnodes": "3",
        "--node-rank": "2",
        "--nproc-per-node": "1",
        "--master-addr": "10.0.0.1",
        "--master-port": str(small(3, ranks_per_node=1).master_port),
        "--log-dir": "{run_dir}/torchrun",
    }
    assert node.command[13] == "{run_dir}/workload/train.py"
    assert node.upload == ["shakedown.jobs.workload"]
    assert node.environment["GLOO_SOCKET_IFNAME"] == "eth0"


@pytest.mark.parametrize(
    ("recipe", "flag"), [("gpt-small-tp2", "--tensor-parallel"), ("gpt-small-pp2", "--pipeline-parallel")]
)
def test_model_parallel_recipes_of_the_embedded_default(recipe: str, flag: str) -> None:
    plan = small(recipe=recipe)
    assert value(plan.nodes[0], flag) == ["2"]
    assert (plan.data_parallel, plan.global_batch) == (1, 8)


def test_the_small_gpt_in_a_container() -> None:
    plan = rack("gpt-small", runtime="container", options={"seed": 7})
    (node,) = plan.nodes
    job = node.command[node.command.index("/shakedown/job.sh") :]
    assert job[1] == "torchrun"
    assert "/shakedown/workload/train.py" in job
    assert job[-2:] == ["--seed", "7"]


def test_a_plan_says_what_each_part_of_the_job_needs() -> None:
    first, second = (node.needs for node in small(2).nodes)
    assert [need.kind for need in first] == ["python", "program", "room", "port"]
    assert first[0].modules == ["torch", "numpy", "megatron.core"]
    assert [need.kind for need in second] == ["python", "program", "room"], "the port is the first node's"
    data = {"volumes": {"/srv/data": "/data"}, "options": {"MOCK_DATA": 0, "DATA_PATH": "/data/c4"}}
    (part,) = rack("llama3.1-8b-fp8", **data).nodes
    assert [need.kind for need in part.needs] == ["image", "data", "room", "port"]
    assert part.needs[1].path == "/srv/data/c4", "as the host sees it"
    assert [need.kind for need in rack("llama3.1-8b-fp8").nodes[0].needs] == ["image", "room", "port"], "mock data"


# -- job.sh and verbs.sh, run for real with stand-ins for what the image holds ------------------------------------


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def environment(*tools: Path, **more: str) -> dict[str, str]:
    return {"PATH": ":".join([*(str(tool.parent) for tool in tools), os.environ["PATH"]]), **more}


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run job.sh around a training script that, like Megatron's, ends with the exit code of its summary."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("job.sh", "verbs.sh"):
        (folder / name).write_text((SCRIPTS / name).read_text("utf-8"))
    (tmp_path / "bin").mkdir()
    train = script(tmp_path / "train.sh", 'eval "torchrun --nnodes 1 pretrain.py |& tee $LOG"; echo summary')

    def run(torchrun: str, *words: str, arguments: str | None = None) -> subprocess.CompletedProcess[str]:
        tool = script(tmp_path / "bin" / "torchrun", torchrun)
        if arguments is not None:
            (folder / "arguments").write_text(arguments)
        command = ["bash", str(folder / "job.sh"), *(words or ("bash", str(train)))]
        log = str(folder / "logs" / "output_perf.log")
        return subprocess.run(command, env=environment(tool, LOG=log), capture_output=True, text=True, timeout=20)

    return run


@pytest.mark.parametrize("code", [0, 1, 137])
def test_the_exit_code_is_torchruns_and_not_the_summarys(
    job: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, code: int
) -> None:
    ended = job(f"echo training; exit {code}")
    assert ended.returncode == code
    assert ended.stdout.splitlines() == ["training", "summary"]
    assert (tmp_path / "run/logs/output_perf.log").read_text() == "training\n"


def test_a_script_that_never_starts_torchrun_has_failed(job: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert job("exit 0", "true").returncode == 1
    assert "ended without having started torchrun" in job("exit 0", "true").stderr
    assert job("exit 0", "bash", "-c", "exit 3").returncode == 3


def test_options_without_a_variable_reach_torchrun(job: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    ended = job('printf "<%s>" "$@"', arguments="--transformer-impl\nlocal\na b\n")
    assert ended.stdout.startswith("<--nnodes><1><pretrain.py><--transformer-impl><local><a b>")


def test_what_the_plan_decided_holds_though_the_script_exports_its_own(
    job: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    train = script(tmp_path / "own.sh", "export NCCL_IB_HCA=rdma0,rdma1 SCRIPTS_OWN=1 HF_TOKEN=kept; torchrun x")
    (tmp_path / "run/environment").write_text('NCCL_IB_HCA=bnxt_re0,bnxt_re1\nODD=a b=$HOME "c"\nHF_TOKEN\n')
    ended = job('echo "$NCCL_IB_HCA|$SCRIPTS_OWN|$ODD|$HF_TOKEN"', "bash", str(train))
    assert (ended.stdout, ended.returncode) == ('bnxt_re0,bnxt_re1|1|a b=$HOME "c"|kept\n', 0)


def test_traces_of_the_profiler_become_one_file(
    job: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    logs = tmp_path / "run/logs"
    assert job("exit 0").returncode == 0
    assert not (logs / "traces.tar.gz").exists()
    assert job(f"echo '{{}}' >{logs}/n1_7.3.pt.trace.json; exit 3").returncode == 3
    listed = subprocess.run(["tar", "-tzf", str(logs / "traces.tar.gz")], capture_output=True, text=True, timeout=20)
    assert listed.stdout.splitlines() == ["n1_7.3.pt.trace.json"]


def test_torchrun_without_a_script(job: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert job("exit 5", "torchrun", "train.py").returncode == 5


def test_the_library_is_copied_before_the_job(
    job: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    host, target = tmp_path / "lib.so.host", tmp_path / "lib.so"
    host.write_text("host's")
    target.write_text("image's")
    assert job(f'[ "$(cat {target})" = "host\'s" ]', "--copy", str(host), str(target), "torchrun").returncode == 0
    missing = job("exit 0", "--copy", str(tmp_path / "no"), str(target), "torchrun")
    assert missing.returncode == 1
    assert "no" in missing.stderr


@pytest.mark.parametrize(
    ("listing", "wanted", "code", "words"),
    [
        (r"2 HCAs found:\n\tbnxt_re0\n\tbnxt_re1\n", ["bnxt_re0", "bnxt_re1"], 0, ""),
        (r"1 HCA found:\n\tbnxt_re10\n", ["bnxt_re1"], 1, "does not list bnxt_re1; it says"),
        (r"0 HCAs found:\n", ["bnxt_re0", "bnxt_re1"], 1, "does not list bnxt_re0 bnxt_re1"),
    ],
)
def test_devices_that_the_image_does_not_see(
    tmp_path: Path, listing: str, wanted: list[str], code: int, words: str
) -> None:
    tool = script(tmp_path / "ibv_devinfo", f"printf '{listing}'")
    check = tmp_path / "verbs.sh"
    check.write_text((SCRIPTS / "verbs.sh").read_text("utf-8"))
    ended = subprocess.run(["bash", str(check), *wanted], env=environment(tool), capture_output=True, text=True)
    assert (ended.returncode, words in ended.stderr) == (code, True)


def test_an_image_without_ibv_devinfo_proves_nothing(tmp_path: Path) -> None:
    check = tmp_path / "verbs.sh"
    check.write_text((SCRIPTS / "verbs.sh").read_text("utf-8"))
    ended = subprocess.run(["/bin/bash", str(check), "x"], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "the image has no ibv_devinfo" in ended.stderr
