"""Programs from Kafka's jars: how any of them is started, and Kafka's own tools run to their end."""

import os
import subprocess

from headgate import jars
from headgate.errors import HeadgateError, KafkaUnavailable

# Compiling with C1 only took about 30 % less CPU until the broker was ready (two runs each, on two cores); the time
# until it was ready did not differ beyond the noise.
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64M", "-Xmx384M", "-Djava.awt.headless=true")


def java_command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment that run something from Kafka's jars."""
    class_path = os.pathsep.join(map(str, jars.resolve(jars.KAFKA)))
    # In the environment the class path does not drown the rest of the command line in `ps`.
    environment = {**os.environ, "CLASSPATH": class_path, "LC_ALL": "C.UTF-8"}
    return [str(jars.java()), *JVM_OPTIONS, *arguments], environment


def run_kafka_tool(main_class: str, *args: str, timeout_s: float = 60.0) -> str:
    """Runs one of Kafka's own tools, for example org.apache.kafka.tools.consumer.group.ConsumerGroupCommand."""
    command, environment = java_command("-Dlog4j2.level=OFF", main_class, *args)
    tool = main_class.rpartition(".")[2]
    try:
        ran = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"{tool} did not end within {timeout_s:g} s: check that Kafka is running") from None
    if ran.returncode != 0:
        said = (ran.stderr.strip() or ran.stdout.strip() or "it said nothing").splitlines()
        raise HeadgateError(f"{tool} failed with exit code {ran.returncode}: {said[0]}")
    return ran.stdout
