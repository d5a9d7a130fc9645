"""The checks of `headgate doctor` that concern the parts of the pipeline: are they at work, and do they keep up?"""

from collections.abc import Collection

from headgate.controller.health_values import Finding, KafkaFacts, Verdict
from headgate.controller.health_words import ago, some, span

_SILENT_MS = 30_000
_FORGOTTEN_MS = 600_000
"""A consumer silent for this long was replaced by another one, or the pipeline was killed as a whole."""
_LATE_MS, _MANY_GOALS = 60_000, 10
"""An oldest unread record is late after so many times the SLO's latency, and not before a minute."""


def parts(kafka: KafkaFacts, now_ms: int) -> Finding:
    """Monitor, controller, committer and consumers: when was each last heard of, and do cycles go well?"""
    if not kafka.has_run:
        return Finding("parts", Verdict.warn, "the pipeline has never run on these brokers", "headgate run FILE")
    needed = ("the monitor", "the controller", "the committer")
    heard = {voice.who: now_ms - voice.written_ms for voice in kafka.voices}
    heard = {who: ago_ms for who, ago_ms in heard.items() if who in needed or ago_ms < _FORGOTTEN_MS}
    silent = [who for who in needed if heard.get(who, _SILENT_MS + 1) > _SILENT_MS]
    silent += [who for who, ago_ms in heard.items() if who not in needed and ago_ms > _SILENT_MS]
    evidence = ", ".join(f"{who.removeprefix('the ')} {ago(ago_ms)}" for who, ago_ms in sorted(heard.items()))
    never = [who for who in needed if who not in heard]
    evidence = "; ".join(filter(None, [evidence, f"never heard: {some(never)}" if never else ""]))
    if silent:
        return Finding("parts", Verdict.fail, evidence, f"silent: {some(silent)}; {_start(silent, needed)}")
    failing = [f"{voice.who}: {voice.error}" for voice in kafka.voices if voice.who in heard and voice.error]
    if failing:
        advice = "it tries again, and its records wait; docs/recover.md and <home>/headgate.log say more"
        return Finding("parts", Verdict.warn, some(failing), advice)
    return Finding("parts", Verdict.ok, evidence)


def _start(silent: Collection[str], needed: Collection[str]) -> str:
    """A whole `run` beside a controller that works would take the pipeline from it."""
    roles = [who.removeprefix("the ") for who in needed if who in silent]
    if not roles:
        return "the controller replaces consumers; its log says why it did not"
    if "controller" in roles:
        return "start the pipeline: headgate run FILE"
    return f"start what is missing: headgate run FILE --roles {','.join(roles)}"


def lag(kafka: KafkaFacts, now_ms: int) -> Finding:
    """Is somebody reading what the lake misses, and fast enough?"""
    waiting = {p: p.end - max(p.begin, p.ledger_next) for p in kafka.partitions if p.ledger_next is not None}
    unread = [p for p, records in waiting.items() if records > 0]
    if not unread:
        return Finding("lag", Verdict.ok, "everything is in the lake")
    ages_ms = [now_ms - p.oldest_unread_ms for p in unread if p.oldest_unread_ms is not None]
    since = f", the oldest for {span(max(ages_ms))}" if ages_ms else ""
    evidence = f"{sum(waiting[p] for p in unread):,} records wait{since}"
    at_work = {voice.who for voice in kafka.voices if now_ms - voice.written_ms <= _SILENT_MS}
    if "the controller" in at_work and not any(who.startswith("consumer ") for who in at_work):
        return Finding(
            "lag",
            Verdict.fail,
            f"{evidence}, and no consumer is at work",
            "the controller's alerts and <home>/headgate.log say why none came up; docs/recover.md, A bad deployment",
        )
    if max(ages_ms, default=0) > max(_LATE_MS, _MANY_GOALS * 1000 * kafka.slo_latency_s):
        return Finding(
            "lag",
            Verdict.warn,
            evidence,
            "it catches up, or headgate status FILE --once shows consumers that fail, headgate explain FILE what was "
            "decided; raise fleet.max_consumers if all of them work",
        )
    return Finding("lag", Verdict.ok, evidence)


def versions(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.refused:
        return Finding("versions", Verdict.fail, some(kafka.refused), "stop the pipeline, upgrade everywhere, start it")
    at_work = [v for v in kafka.voices if now_ms - v.written_ms <= _SILENT_MS]
    releases = sorted({v.release for v in at_work})
    if len(releases) > 1:
        named = [f"{release}: {some([v.who for v in at_work if v.release == release])}" for release in releases]
        advice = "they understand each other; upgrade all to one release"
        return Finding("versions", Verdict.warn, "; ".join(named), advice)
    return Finding("versions", Verdict.ok, f"Headgate {releases[0]} everywhere" if releases else "nobody is at work")


def controller(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.alerts:
        advice = "headgate explain FILE says when and why; what is over by now needs nothing"
        return Finding("controller", Verdict.warn, f"raised within the last hour: {some(kafka.alerts)}", advice)
    return Finding("controller", Verdict.ok, "raised no alert within the last hour")


def committer(kafka: KafkaFacts, now_ms: int) -> Finding:
    if kafka.problems:
        return Finding("committer", Verdict.fail, some(kafka.problems), "docs/recover.md lists what each means")
    return Finding("committer", Verdict.ok, "reports no problem")
