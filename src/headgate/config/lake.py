"""The `lake` part of a pipeline file: catalog, warehouse, and how snapshots come and go."""

from pathlib import Path
from urllib.parse import urlparse

from pydantic import Field

from headgate.config.kafka import Setting
from headgate.config.section import Section
from headgate.config.units import Bytes, Seconds, SecondsOrZero

HOME = "<home>"
"""Stands for the pipeline's home in the defaults below; the pipeline fills it in."""


class Lake(Section):
    """The Iceberg catalog and warehouse, and the committer's pace."""

    catalog: dict[str, Setting] = Field(
        default={"type": "sql", "uri": f"sqlite:///{HOME}/catalog.db"},
        min_length=1,
        description="Properties for PyIceberg's load_catalog (sql, rest, glue, hive ...), including those of its file "
        "system. Default: an SQLite file in home, which needs no service; use a shared catalog when other programs "
        "write too.",
    )
    catalog_name: str = Field(
        default="headgate", min_length=1, description="Name of the catalog. Default headgate; SQL catalogs store it."
    )
    warehouse: str = Field(
        default=f"{HOME}/warehouse",
        min_length=1,
        description="Where table files go: a path or a URI that PyIceberg knows, such as s3://bucket/path. "
        "Default <home>/warehouse. Every "
        "consumer must be able to write there. Relative paths are relative to the pipeline file.",
    )
    commit_interval_s: Seconds = Field(
        default=1.0,
        description="Time between commits, in seconds: one snapshot per table and interval carries the whole fleet's "
        "files. Default 1 s: fresh enough to watch; longer means fewer snapshots and less metadata, and wants larger "
        "consumer.batch_bytes or consumer.max_uncommitted_cycles: in one interval a consumer reads their product at "
        "most. Alert HeadgateStandstill takes more than ten minutes for a standstill.",
    )
    keep_snapshots: int = Field(
        default=30,
        ge=1,
        description="Most snapshots kept per table. Default 30: every commit rewrites the list, and with 100 snapshots "
        "takes twice as long as with 30, with 300 four times; what you tag stays. The one that carries the "
        "ledger is always kept, and with more than 1,500 partitions there are fewer.",
    )
    keep_hourly: int = Field(
        default=24,
        ge=0,
        description="Kept beyond keep_snapshots: what was in force at so many last full hours, to roll back to "
        "(`headgate rollback`). Default 24: bad rows are mostly noticed within a day. With more than 900 partitions "
        "there are fewer, so that lists stay short; 0 keeps none.",
    )
    keep_snapshots_s: SecondsOrZero = Field(
        default=432_000.0,
        description="Snapshots younger than this, in seconds, are kept, up to keep_snapshots of them; older ones are "
        "expired. Default 5 days, as Iceberg's own.",
    )
    orphan_age_s: Seconds = Field(
        default=86_400.0,
        description="Files in no table and older than this, in seconds, are swept. Default 1 day. At least twice "
        "consumer.commit_deadline_s and commit_interval_s together: from half of it on, counted from the beginning of "
        "its cycle, a file is not committed any more, so that no sweep can meet a commit.",
    )
    target_file_bytes: Bytes = Field(
        default=128_000_000,
        description="How large compaction makes data files; files below a quarter of it count as small. Default 128 "
        "MB: a reader opens few files, and rewriting one takes seconds.",
    )
    maintain_every_s: Seconds | None = Field(
        default=None,
        description="Time between rounds of upkeep by the committer's process: expire snapshots, compact small files, "
        "sweep orphans. Default: none, run `headgate maintain` yourself; 1 h is right for a table with a commit every "
        "second.",
    )

    @property
    def catalog_properties(self) -> dict[str, str]:
        """What load_catalog takes: the warehouse too, unless the catalog has its own idea of it (REST)."""
        return {"warehouse": self.warehouse, **self.catalog}

    @property
    def local_folder(self) -> Path | None:
        """The warehouse if it is a folder of this machine."""
        uri = urlparse(self.warehouse)
        if uri.scheme == "file":
            return Path(uri.path)
        return None if "://" in self.warehouse else Path(self.warehouse)
