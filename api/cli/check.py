"""meshwright check: what a ds_config does, what it does not, and how to mend it."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.markup import escape

from api.cli.request import assignments
from cost_model.specs import ClusterSpec, ModelSpec
from planner.check import MODES, Report
from planner.check import check as run_check
from planner.check.schema import DEFAULT_VERSION
from planner.errors import Problem, RequestError
from planner.request import ClusterRequest, ModelRequest

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
EXIT_ERROR = 1


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise RequestError([Problem("CONFIG", f"{path}: {reason}", "give a file")]) from error


def _document(path: Path | None, pointer: str) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        value = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        wanted = "give a JSON or YAML file"
        raise RequestError([Problem(pointer, f"{path} cannot be read", wanted)]) from error
    if not isinstance(value, dict):
        raise RequestError([Problem(pointer, f"{path} holds no mapping", "give one")])
    return value


def _named(value: str, pointer: str) -> Any:
    """A preset's name, or the mapping in a file."""
    if value.endswith((".json", ".yaml")) or "/" in value:
        return _document(Path(value), pointer)
    return value


def _model(value: str | None) -> ModelSpec | None:
    if value is None:
        return None
    return ModelRequest.model_validate(_named(value, "/model")).spec()


def _cluster(value: str | None, nodes: int | None) -> ClusterSpec | None:
    if value is None:
        return None
    described = _named(value, "/cluster")
    if isinstance(described, str):
        described = {"preset": described}
    if nodes is not None:
        described = {**described, "nodes": nodes}
    return ClusterRequest.model_validate(described).spec()


def _show(report: Report) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for finding in report.findings:
        colour = COLOURS[finding.severity]
        where = f" {finding.path}" if finding.path else ""
        console.print(
            f"[{colour}]{finding.severity}[/{colour}] [bold]{escape(finding.code)}[/bold]"
            f"{escape(where)}"
        )
        console.print(f"  {escape(finding.reason)}")
        console.print(f"  mend: {escape(finding.mend)}")
    counts = {s: sum(f.severity == s for f in report.findings) for s in COLOURS}
    told = ", ".join(f"{n} {s}{'s' * (n != 1)}" for s, n in counts.items())
    verdict = "accepts" if report.engine_accepts else "refuses"
    console.print(f"{told}. DeepSpeed {verdict} the file as it stands.")


def check(
    config: Annotated[str, typer.Argument(help="The ds_config; - reads standard input.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Preset name, or a config.json.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="Preset name, or a JSON file.")
    ] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", "-n", help="Nodes there are.")] = None,
    world_size: Annotated[
        int | None, typer.Option(min=1, help="Ranks; the cluster's GPUs where not given.")
    ] = None,
    software: Annotated[
        str | None, typer.Option(help="Who reads it: " + ", ".join(sorted(MODES)) + ".")
    ] = None,
    deepspeed_version: Annotated[
        str, typer.Option(help="DeepSpeed version to check for.")
    ] = DEFAULT_VERSION,
    package: Annotated[
        list[str] | None, typer.Option(help="Another package's version: transformers=4.46.1.")
    ] = None,
    trainer_args: Annotated[
        Path | None, typer.Option(help="TrainingArguments (JSON or YAML) beside it.")
    ] = None,
    accelerate_config: Annotated[
        Path | None, typer.Option(help="The Accelerate config beside it.")
    ] = None,
    fact: Annotated[
        list[str] | None, typer.Option(help="A fact of the run: pp=4, vpp=2, native_moe=true.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(min=1, help="Tokens of a sequence.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Write the corrected config over the file.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Or write the corrected config here.")
    ] = None,
) -> None:
    """Check a ds_config: keys, values, combinations, batch sizes, memory; exit code 1 on errors."""
    if software is not None and software not in MODES:
        wanted = "one of " + ", ".join(sorted(MODES))
        raise RequestError([Problem("--software", f"got {software!r}", wanted)])
    report = run_check(
        _text(config),
        model=_model(model),
        cluster=_cluster(cluster, nodes),
        software=software,
        world_size=world_size,
        deepspeed_version=deepspeed_version,
        packages={k: str(v) for k, v in assignments(package or [], "--package").items()},
        trainer_args=_document(trainer_args, "--trainer-args"),
        accelerate_config=_document(accelerate_config, "--accelerate-config"),
        facts=assignments(fact or [], "--fact"),
        seq_len=seq_len,
    )
    target = output or (Path(config) if fix and config != "-" else None)
    if target is not None:
        target.write_text(json.dumps(report.fixed, indent=2) + "\n", "utf-8")
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)
    if report.has_error:
        raise typer.Exit(EXIT_ERROR)
