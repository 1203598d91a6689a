"""The command `meshwright`. Each subcommand lives in its own file and is registered here."""

import sys

import typer

from api.cli import campaign, catalogue, check, export, plan, predict, serve, trials
from api.cli.errors import shown

app = typer.Typer(
    name="meshwright",
    help="Which distributed training plan runs a model on a cluster, and how fast.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
)

app.command("plan")(shown(plan.plan))
app.command("why-not")(shown(plan.why_not))
app.command("predict")(shown(predict.predict))
app.command("export")(shown(export.export))
app.command("check")(shown(check.check))
app.command("dry-run")(shown(trials.dry_run))
app.command("trial")(shown(trials.trial))
app.command("campaign")(shown(campaign.campaign))
app.command("serve")(shown(serve.serve))
app.command("models")(shown(catalogue.models))
app.command("hardware")(shown(catalogue.hardware))


if __name__ == "__main__":
    sys.exit(app())
