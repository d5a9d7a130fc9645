"""`headgate consumer`: one consumer in a process of its own. The fleet runs this module; a pod can run the command.

How soon a consumer is ready is how soon a fleet can grow, so nothing is imported here before it is needed.
"""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from headgate.cli.errors import exit_with_one_line
from headgate.cli.logs import LogFormat, LogFormatOption, log_to


def consumer(
    file: Annotated[Path, typer.Argument(help="The pipeline file.", metavar="FILE")],
    id: Annotated[int, typer.Option(help="Which consumer this is: 1, 2, …; selects its command partition.", min=1)],
    folder: Annotated[
        Path | None, typer.Option(help="Where it keeps its state; default <home>/consumers/<id>.", metavar="DIR")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Serve Prometheus metrics on this port.",
            min=0,
            max=65535,
            show_default="any that is free, if the pipeline file has a metrics_port",
        ),
    ] = None,
    metrics_address: Annotated[
        str | None,
        typer.Option(help="Address to serve metrics on.", show_default="the pipeline file's metrics_address"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every cycle.")] = False,
    log_format: LogFormatOption = LogFormat.text,
) -> None:
    """Runs one consumer until SIGTERM, which lets it finish its cycle.

    Usually the fleet starts it. By hand it is useful for looking at one consumer alone. It needs Kafka, the
    warehouse and a folder to remember its partitions in; no catalog.
    """
    from headgate.config.loader import load_pipeline
    from headgate.consumer.spark import start_session

    pipeline = load_pipeline(file)
    folder = folder or pipeline.home / "consumers" / str(id)
    log_to(None, verbose, terminal=True, log_format=log_format)
    stop, kill = threading.Event(), threading.Event()

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        (kill if stop.is_set() else stop).set()

    signal.signal(signal.SIGTERM, asked_to_stop)
    signal.signal(signal.SIGINT, asked_to_stop)
    spark, name = pipeline.consumer.spark, f"{pipeline.name}-{id}"
    with ThreadPoolExecutor(1) as beside:  # Spark starts while we import what works with it
        session = beside.submit(
            start_session, spark.master, folder, name, spark.remote, spark.conf, python_path=pipeline.folder
        )
        from headgate.consumer.worker import Worker
        from headgate.kafka.build_info import show_build
        from headgate.metrics_endpoint import consumer_part, serve

    endpoint = None
    if metrics_port is not None or pipeline.metrics_port is not None:
        show_build()
        address = metrics_address or pipeline.metrics_address
        endpoint = serve(metrics_port or 0, address, pipeline.home, pipeline.name, consumer_part(id))
    try:
        Worker(pipeline, id, session.result, folder).run(stop, kill)
    finally:
        if endpoint is not None:
            endpoint.withdraw()


if __name__ == "__main__":
    exit_with_one_line(lambda: typer.run(consumer))
