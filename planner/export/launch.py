"""Scripts that start the plan: DeepSpeed's launcher, torchrun, Accelerate, Slurm, Kubernetes."""

from collections.abc import Sequence

from cost_model.plans import Software
from planner.export.example import script_arguments
from planner.export.kubernetes import train_job
from planner.export.quoting import lines, words
from planner.export.result import Exported, Planned

HEAD = """#!/usr/bin/env bash
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./env.sh
"""
MEGATRON = (Software.MEGATRON, Software.MEGATRON_DEEPSPEED)
MEGATRON_HEAD = """. ./megatron_args.sh
: "${MEGATRON_PATH:?set it to the checkout that holds pretrain_gpt.py}"
"""
MEGATRON_PROGRAM = ' \\\n  "$MEGATRON_PATH/pretrain_gpt.py" "${MEGATRON_ARGS[@]}"'


def _is_megatron(planned: Planned) -> bool:
    return planned.plan.software in MEGATRON


def _program(planned: Planned) -> str:
    """What is started on every rank, after the launcher's own arguments."""
    if _is_megatron(planned):
        return MEGATRON_PROGRAM
    rest = " ".join(words(script_arguments(planned)))
    return f' \\\n  {rest} "$@"'


def _head(planned: Planned) -> str:
    return HEAD + (MEGATRON_HEAD if _is_megatron(planned) else "")


def hostfile(planned: Planned) -> str:
    """DeepSpeed's hostfile: a node and its slots a line, in the order of the stages."""
    rows: list[str] = []
    for number, host in enumerate(planned.hosts):
        groups = planned.host_groups[max(number - 1, 0) : number + 1]
        if groups and (number == 0 or len(set(groups)) > 1):
            rows.append(f"# {groups[-1]}")
        rows.append(f"{host} slots={planned.gpus_per_node}")
    return "".join(f"{row}\n" for row in rows)


def deepspeed_script(planned: Planned) -> str:
    """Started once, on the first node; the others are reached by pdsh over ssh."""
    command = ["deepspeed"]
    rows: list[Sequence[object]] = []
    if planned.nodes > 1:
        rows.append(["--hostfile", "hostfile"])
        rows.append(["--master_addr", planned.hosts[0]])
    else:
        rows.append(["--num_gpus", planned.gpus_per_node])
    rows.append(["--master_port", planned.options.master_port])
    note = "# Start once, on the first node: the launcher reaches the others by pdsh and ssh.\n"
    return HEAD.replace("set -euo", note + "set -euo") + _tail(planned, command, rows)


def _tail(planned: Planned, command: list[str], rows: list[Sequence[object]]) -> str:
    megatron = MEGATRON_HEAD if _is_megatron(planned) else ""
    return megatron + "exec " + lines(command, rows) + _program(planned) + "\n"


def torchrun_script(planned: Planned) -> str:
    """Started on every node with its number."""
    usage = ""
    rank = ["--node_rank", 0]
    ranked = lines(["torchrun"], [["--nnodes", planned.nodes]])
    if planned.nodes > 1:
        usage = (
            f"# Start on every node with its number: ./launch_torchrun.sh 0 on {planned.hosts[0]}, "
            f"up to {planned.nodes - 1}.\n"
        )
        node = "node_rank=${1:?the number of this node, from 0}\nshift\n"
        body = ranked + ' \\\n  --node_rank "$node_rank"'
    else:
        node = ""
        body = ranked + " \\\n  " + " ".join(words(rank))
    rows: list[Sequence[object]] = [
        ["--nproc_per_node", planned.gpus_per_node],
        ["--master_addr", planned.hosts[0] if planned.nodes > 1 else "127.0.0.1"],
        ["--master_port", planned.options.master_port],
    ]
    more = "".join(" \\\n  " + " ".join(words(row)) for row in rows)
    head = HEAD.replace("set -euo", usage + "set -euo")
    megatron = MEGATRON_HEAD if _is_megatron(planned) else ""
    return head + node + megatron + "exec " + body + more + _program(planned) + "\n"


def accelerate_script(planned: Planned) -> str:
    """Started on every node with its number; everything else is in the config."""
    head = HEAD.replace(
        "set -euo", "# Start on every node with its number, 0 for the first.\nset -euo"
    )
    return (
        head
        + "machine_rank=${1:-0}\n[ $# -gt 0 ] && shift\n"
        + "exec accelerate launch --config_file accelerate_config.yaml \\\n"
        + '  --machine_rank "$machine_rank"'
        + _program(planned)
        + "\n"
    )


def sbatch_script(planned: Planned) -> str:
    """One task a node, which starts torchrun; the node's number is read on the node itself."""
    options = planned.options
    directives = [
        f"--job-name={options.job_name}",
        f"--nodes={planned.nodes}",
        "--ntasks-per-node=1",
        f"--gres=gpu:{planned.gpus_per_node}",
        f"--cpus-per-task={planned.cluster.node.cpu_cores}",
        f"--time={options.time_limit_minutes}",
        "--output=%x-%j.log",
        "--open-mode=append",
    ]
    if options.partition is not None:
        directives.append(f"--partition={options.partition}")
    if options.account is not None:
        directives.append(f"--account={options.account}")
    rows = "\n".join(f"#SBATCH {d}" for d in directives)
    arguments = " ".join(words(script_arguments(planned)))
    program = arguments
    setup = ""
    if _is_megatron(planned):
        setup = MEGATRON_HEAD
        program = '"$MEGATRON_PATH/pretrain_gpt.py" "${MEGATRON_ARGS[@]}"'
    inner = (
        'exec torchrun --nnodes "$SLURM_NNODES" --node_rank "$SLURM_NODEID" '
        f"--nproc_per_node {planned.gpus_per_node} "
        '--master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" "$@"'
    )
    return (
        f"#!/usr/bin/env bash\n{rows}\n"
        "set -euo pipefail\n"
        'cd -- "${SLURM_SUBMIT_DIR:-.}"\n'
        ". ./env.sh\n"
        f"{setup}"
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        f"MASTER_PORT={options.master_port}\n"
        "export MASTER_ADDR MASTER_PORT\n"
        "# Single quotes: SLURM_NODEID must be read on each node, not here.\n"
        "# shellcheck disable=SC2016\n"
        f"srun --kill-on-bad-exit=1 bash -c '{inner}' torchrun \\\n"
        f'  {program} "$@"\n'
    )


def launch(planned: Planned) -> Exported:
    """Every way of starting it that the software has."""
    files: dict[str, str | bytes] = {"hostfile": hostfile(planned)}
    if planned.plan.software not in (Software.MEGATRON, Software.FSDP):
        files["launch_deepspeed.sh"] = deepspeed_script(planned)
    files["launch_torchrun.sh"] = torchrun_script(planned)
    if planned.plan.software == Software.DEEPSPEED:
        files["launch_accelerate.sh"] = accelerate_script(planned)
    if planned.host_groups:
        told = " ".join(f"{h}={g}" for h, g in zip(planned.hosts, planned.host_groups, strict=True))
        note = (
            f"The stages lie on groups of different nodes, so the nodes have this order: {told}. "
            "Slurm and Kubernetes order the nodes themselves: no script for them."
        )
        return Exported("launch_torchrun.sh", files, (note,))
    files["job.sbatch"] = sbatch_script(planned)
    files["trainjob.yaml"] = train_job(planned)
    main = "job.sbatch" if planned.nodes > 1 else "launch_torchrun.sh"
    return Exported(main, files)
