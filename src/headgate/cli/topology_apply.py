"""What `headgate topology advise` does with a plan: choose it, write it, carry it out."""

from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress

from headgate.cli.topology_source import LiveCluster, Source, read_text
from headgate.errors import ConfigError
from headgate.model import TopicPartition
from headgate.topology import advice as advising
from headgate.topology.cluster import Topology
from headgate.topology.reassignment import read_reassignment
from headgate.topology.standing import Standing


def judged(found: Source, change: Path) -> advising.Advice:
    wanted = read_reassignment(read_text(change), str(change))
    return advising.judged(Standing(found.topology), wanted, str(change))


def chosen_plan(made: advising.Advice, name: str | None) -> advising.Plan:
    if name is None:
        if not made.plans:
            raise ConfigError("there is no plan to save or apply: nothing would become better")
        return made.plans[0]
    plan = made.named(name)
    if plan is None:
        known = [plan.name for plan in (*made.plans, *(plan for plan, _ in made.rejected))]
        raise ConfigError(f"no plan {name!r} for this cluster: there are {', '.join(known)}")
    if not plan.change.replicas:
        raise ConfigError(f"plan {name} changes nothing")
    return plan


def _base(topology: Topology, plan: advising.Plan) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that a plan found and means to change."""
    return {
        at: partition.replicas
        for topic in topology.topics
        for partition in topic.partitions
        if (at := TopicPartition(topic.name, partition.index)) in plan.change.replicas
    }


def carry_out(
    live: LiveCluster, found: Source, plan: advising.Plan, throttle_bytes_per_s: int | None, yes: bool
) -> None:
    if not yes and not typer.confirm(
        f"Apply plan {plan.name} to {found.name}: {len(plan.change)} partitions, {plan.copies} copies?", err=True
    ):
        raise ConfigError("nothing was applied")
    admin = live.admin()
    now = live.reader(admin).read()
    if _base(found.topology, plan) != _base(now, plan):
        raise ConfigError(
            "the cluster has changed since the plan was made, and nothing was applied: ask for advice again"
        )
    mover = live.mover(admin)
    try:
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("reassigning (Ctrl-C takes it back)", total=len(plan.change))
            done = mover.apply(
                now,
                plan.change,
                throttle_bytes_per_s,
                lambda p: bar.update(task, completed=p.done),
                may_add_replicas=plan.may_add_replicas,
            )
    except KeyboardInterrupt:  # before anything was moved, or after: `apply` deals with those in between
        typer.echo("interrupted: `headgate topology cancel` ends what may be left of it", err=True)
        raise typer.Exit(130) from None
    finally:
        mover.close()
    if not done:
        typer.echo("cancelled: partitions not yet moved are as they were", err=True)
        raise typer.Exit(130)
    typer.echo(f"plan {plan.name} applied: {len(plan.change)} partitions", err=True)
