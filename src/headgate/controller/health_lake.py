"""The checks of `headgate doctor` that concern the tables."""

from headgate.controller.health_values import Finding, LakeFacts, Verdict
from headgate.controller.health_words import some

_FEW_FILES = 100


def ledger(lake: LakeFacts, now_ms: int) -> Finding:
    """Does every table say where to go on?"""
    if lake.ledgers.unread:
        return Finding(
            "ledger",
            Verdict.fail,
            some(lake.ledgers.unread),
            "nothing is committed there until it can be read; docs/recover.md, The lake, says how to get it back",
        )
    return Finding("ledger", Verdict.ok, f"{len(lake.ledgers.positions):,} partitions")


def files(lake: LakeFacts, now_ms: int) -> Finding:
    worst = max(lake.small_files, key=lambda small: small.files, default=None)
    if worst is None or worst.files <= _FEW_FILES:
        count = sum(t.files for t in lake.tables)
        return Finding("files", Verdict.ok, f"{count:,} data files in {len(lake.tables)} tables")
    return Finding(
        "files",
        Verdict.warn,
        f"{worst.table}: {worst.files:,} small files, {worst.bytes / worst.files / 1e6:.2g} MB on average",
        "readers open every one: headgate maintain FILE --apply, or lake.maintain_every_s",
    )


def snapshots(lake: LakeFacts, now_ms: int) -> Finding:
    most = max(lake.tables, key=lambda t: t.snapshots, default=None)
    if most is None:
        return Finding("snapshots", Verdict.ok, "no table yet")
    evidence = f"{most.name} has {most.snapshots}, {lake.keep_snapshots + lake.keep_hourly} are to be kept"
    if most.snapshots <= 3 * lake.keep_snapshots + lake.keep_hourly:  # the committer expires every 25 commits
        return Finding("snapshots", Verdict.ok, evidence)
    return Finding(
        "snapshots", Verdict.warn, evidence, "every commit rewrites the list: headgate maintain FILE --apply"
    )
