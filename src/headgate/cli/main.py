"""The `headgate` program: its commands, and errors as one clear line."""

from importlib import metadata

import typer

from headgate.cli import (
    calibrate,
    check,
    collect,
    consumer,
    demo,
    doctor,
    experiment,
    explain,
    group,
    kafka,
    load,
    maintain,
    plan,
    rollback,
    run,
    simulate,
    status,
    topology,
    verify,
)
from headgate.cli.errors import exit_with_one_line
from headgate.cli.flowing import flow

app = typer.Typer(
    name="headgate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="""Elastic, exactly-once ingestion from Kafka to Apache Iceberg on PySpark.

Start here: [bold]headgate demo[/] shows everything on this machine in about four minutes. \
Then copy examples/pipeline.yaml, [bold]headgate check[/] it, and [bold]headgate run[/] it against your own Kafka.""",
)
app.command(rich_help_panel="Ingest")(demo.demo)
app.command(rich_help_panel="Ingest")(check.check)
app.command(rich_help_panel="Ingest")(run.run)
app.command(rich_help_panel="Watch")(status.status)
app.command(rich_help_panel="Watch")(explain.explain)
app.command(rich_help_panel="Watch")(verify.verify)
app.command(rich_help_panel="Operate")(doctor.doctor)
app.command(rich_help_panel="Operate")(calibrate.calibrate)
app.command(rich_help_panel="Operate")(maintain.maintain)
app.command(rich_help_panel="Operate")(rollback.rollback)
app.command(rich_help_panel="Operate")(consumer.consumer)
app.add_typer(group.app, name="group", rich_help_panel="Ordinary consumer groups")
app.command(rich_help_panel="Operate")(collect.collect)
app.command(rich_help_panel="Choose a policy")(simulate.simulate)
app.command(rich_help_panel="Choose a policy")(plan.plan)
app.command(rich_help_panel="Try out")(load.load)
app.add_typer(topology.app, name="topology", rich_help_panel="Watch")
app.add_typer(kafka.app, name="kafka", rich_help_panel="Try out")
app.add_typer(experiment.app, name="experiment", rich_help_panel="Try out")
flow(app)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"headgate {metadata.version('headgate')}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    pass


def main() -> None:
    exit_with_one_line(app)


if __name__ == "__main__":
    main()
