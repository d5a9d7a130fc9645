"""An Iceberg REST catalog of our own: the server that Apache Iceberg tests its clients with, on a loopback port."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pyspark

from headgate import jars
from tests.ports import free_port

_JETTY_VERSION = "11.0.24"
_SERVER = jars.JarSet(
    "rest-catalog",
    (
        jars.Dependency("org.apache.iceberg", "iceberg-core", jars.ICEBERG_VERSION, classifiers=("", "tests")),
        jars.Dependency(
            "org.apache.iceberg",
            "iceberg-open-api",
            jars.ICEBERG_VERSION,
            transitive=False,
            classifiers=("test-fixtures",),
        ),
        jars.Dependency("org.eclipse.jetty", "jetty-servlet", _JETTY_VERSION),
        jars.Dependency("org.xerial", "sqlite-jdbc", "3.46.1.3", transitive=False),
    ),
)
_DEADLINE_S = 60.0


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Its address. Tables are in the folder's `warehouse`, what the catalog knows in an SQLite file."""
    port = free_port()
    shipped = Path(pyspark.__file__).parent / "jars"
    hadoop = [next(shipped.glob(f"{name}-*.jar")) for name in ("hadoop-client-api", "hadoop-client-runtime")]
    path = os.pathsep.join(str(jar) for jar in (*jars.resolve(_SERVER), *hadoop))
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder / 'rest-catalog.db'}",
        "CATALOG_WAREHOUSE": (folder / "warehouse").as_uri(),
    }
    with (folder / "rest-catalog.log").open("wb") as log:
        process = subprocess.Popen(
            [str(jars.java()), *jars.SHORT_LIVED_JVM, "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(address, process, folder / "rest-catalog.log")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + _DEADLINE_S
    while True:
        try:
            urlopen(f"{address}/v1/config", timeout=5).close()
            return
        except URLError:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(0.1)
