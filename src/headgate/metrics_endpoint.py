"""Where a process shows its numbers to Prometheus, and the file by which Prometheus finds it.

Consumers in processes come and go, so their ports are whatever is free. Each process describes its endpoint in the
folder `metrics` under the pipeline's home, in the form of Prometheus' `file_sd_configs`.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import start_http_server

from headgate.errors import SetupError
from headgate.home_folder import using


@dataclass(frozen=True, slots=True)
class Endpoint:
    file: Path
    text: str

    def withdraw(self) -> None:
        """Nobody looks for this process any more; whoever took its place stays to be found."""
        with suppress(FileNotFoundError):
            if self.file.read_text() == self.text:
                self.file.unlink()


def serve(port: int, address: str, home: Path, pipeline: str, part: str) -> Endpoint:
    """Serves until this process ends; port 0 is any that is free."""
    try:
        server, _ = start_http_server(port, addr=address)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SetupError(
            f"cannot serve metrics on {address} port {port}: {why}; is this pipeline running here already? Otherwise "
            f"set another metrics_port or metrics_address"
        ) from error
    host = "127.0.0.1" if address in ("", "0.0.0.0", "::") else f"[{address}]" if ":" in address else address
    about = {"targets": [f"{host}:{server.server_port}"], "labels": {"pipeline": pipeline, "part": part}}
    endpoint = Endpoint(target_file(home, part), json.dumps([about]))
    with using(endpoint.file.parent):
        endpoint.file.parent.mkdir(parents=True, exist_ok=True)
        _forget_earlier(endpoint.file.parent, about["targets"])
        draft = endpoint.file.with_suffix(".new")
        draft.write_text(endpoint.text)
        draft.replace(endpoint.file)
    return endpoint


def _forget_earlier(folder: Path, targets: object) -> None:
    """Whoever is said to answer at our address has ended without a word, whatever part it was."""
    for file in folder.glob("*.json"):
        with suppress(OSError, ValueError, LookupError, TypeError):
            if json.loads(file.read_text())[0]["targets"] == targets:
                file.unlink()


def target_file(home: Path, part: str) -> Path:
    return home / "metrics" / f"{part}.json"


def consumer_part(consumer_id: int) -> str:
    return f"consumer-{consumer_id}"
