"""The command `meshwright`. Each subcommand lives in its own file and is loaded when it is used."""

import ast
import importlib
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperGroup

from api.cli.errors import shown

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "plan": ("api.cli.plan", "plan"),
        "why-not": ("api.cli.plan", "why_not"),
        "predict": ("api.cli.predict", "predict"),
        "export": ("api.cli.export", "export"),
        "check": ("api.cli.check", "check"),
        "dry-run": ("api.cli.dry_run", "dry_run"),
        "trial": ("api.cli.trial", "trial"),
        "campaign": ("api.cli.campaign", "campaign"),
        "serve": ("api.cli.serve", "serve"),
        "models": ("api.cli.catalogue", "models"),
        "hardware": ("api.cli.catalogue", "hardware"),
    }
)
"""Module and function of each subcommand."""


def _first_line(name: str) -> str:
    """The first line of a subcommand's docstring, without the imports of its module."""
    module, function = COMMANDS[name]
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    raise LookupError(name)


class _Lazy(TyperGroup):
    """Subcommands whose modules are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, function = COMMANDS[cmd_name]
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name)(shown(getattr(importlib.import_module(module), function)))
        return typer.main.get_command(single)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_line(name)) for name in COMMANDS])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        near_misses: Any = dict.fromkeys(COMMANDS)
        self.commands = near_misses
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Lazy,
    name="meshwright",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
)


@app.callback()
def meshwright() -> None:
    """Which distributed training plan runs a model on a cluster, and how fast."""


if __name__ == "__main__":
    sys.exit(app())
