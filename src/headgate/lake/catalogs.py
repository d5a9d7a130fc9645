"""Opening the Iceberg catalog, with deadlines where its client has none."""

from functools import partial
from pathlib import Path

from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from requests import Session
from sqlalchemy.engine import make_url

from headgate.config.pipeline import Lake
from headgate.config.secrets import Redactor
from headgate.errors import LakeError

_ANSWER_S = 60.0
"""Longest silence of a catalog before it counts as a failure, which is waited out."""
_LIBPQ = ("postgresql", "postgresql+psycopg2", "postgresql+psycopg")
_POSTGRES_DEADLINES = {
    "connect_timeout": "10",
    "tcp_user_timeout": f"{1000 * _ANSWER_S:.0f}",
    # While an answer is waited for, nothing is sent that could go unacknowledged, so it is asked now and then.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}

_SQLITE = "sqlite:///"


class PromptRestCatalog(RestCatalog):
    """Every request has a deadline, also those with which it begins; there is no setting for that. Only tokens of
    `auth.type: oauth2` are asked for elsewhere, without one."""

    def _config_headers(self, session: Session) -> None:
        """What is called first with every new session."""
        session.request = partial(session.request, timeout=_ANSWER_S)  # type: ignore[method-assign]
        super()._config_headers(session)


AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, properties: PromptRestCatalog(name, **properties)


def open_catalog(lake: Lake) -> Catalog:
    uri = lake.catalog.get("uri", "")
    file = _sqlite_file(lake)
    if file is not None:
        _make_folder(file.parent)
    try:
        properties = lake.catalog_properties
        if uri.startswith("postgresql"):
            properties["uri"] = _with_deadlines(uri)
        return load_catalog(lake.catalog_name, **properties)
    except ModuleNotFoundError as error:
        extra = " (pip install '.[postgres]' in Headgate's repository)" if uri.startswith("postgresql") else ""
        raise LakeError(f"the catalog needs the Python package {error.name}: install it{extra}") from error
    except Exception as error:
        first = (str(error) or repr(error)).splitlines()[0]  # databases add pages of advice
        said = Redactor(frozenset(lake.secret_texts()))(first)
        raise LakeError(f"cannot open the catalog: {said}; check lake.catalog") from error


def _with_deadlines(uri: str) -> str:
    """For connections that break without a word; what the user says of them wins."""
    url = make_url(uri)
    if url.drivername not in _LIBPQ:
        return uri
    missing = {key: value for key, value in _POSTGRES_DEADLINES.items() if key not in url.query}
    return url.update_query_dict(missing).render_as_string(hide_password=False)


def is_shared_by_threads(catalog: Catalog) -> bool:
    """Whether threads may use this one at once. A Hive catalog's have one connection between them, and a REST catalog
    keeps the token of the table that it loaded last in its session."""
    return isinstance(catalog, SqlCatalog)


def is_unmade(lake: Lake) -> bool:
    """An SQLite catalog that is not there yet: opening it would make it, and some only want to look."""
    file = _sqlite_file(lake)
    try:
        if file is not None:
            file.stat()
    except FileNotFoundError:
        return True
    except OSError as error:
        why = error.strerror or str(error)
        raise LakeError(f"cannot look for the catalog {file}: {why}; check home and lake.catalog") from error
    return False


def _sqlite_file(lake: Lake) -> Path | None:
    uri = lake.catalog.get("uri", "")
    return Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise LakeError(f"cannot make the catalog's folder {folder}: {why}; check home and lake.catalog") from error
