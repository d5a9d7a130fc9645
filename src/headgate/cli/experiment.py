"""`headgate experiment`: the published experiments, run again beside our own."""

import typer

from headgate.cli import (
    experiment_dispatch,
    experiment_handovers,
    experiment_latency,
    experiment_packing,
    experiment_partitioners,
    experiment_reality,
)

app = typer.Typer(
    no_args_is_help=True, help="Runs a published experiment again, with ours beside it, and writes a report."
)
app.command()(experiment_packing.packing)
app.command()(experiment_latency.latency)
app.command()(experiment_latency.baselines)
app.command()(experiment_reality.reality)
app.command()(experiment_handovers.handovers)
app.command()(experiment_dispatch.dispatch)
app.command()(experiment_partitioners.partitioners)
