"""Which release a process runs, as every part of a pipeline shows it to Prometheus."""

from prometheus_client import Info

from headgate.kafka.codec import RELEASE, VERSION

_BUILD = Info("headgate_build", "Which release this process runs, and its version of the messages")


def show_build() -> None:
    _BUILD.info({"release": RELEASE, "messages": str(VERSION)})
