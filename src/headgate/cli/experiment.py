"""`headgate experiment`: the published experiments, re-run."""

import typer

from headgate.cli import experiment_latency

app = typer.Typer(no_args_is_help=True, help="Re-run the published experiments beside their published numbers.")
app.command()(experiment_latency.latency)
app.command()(experiment_latency.baselines)
