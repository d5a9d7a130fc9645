"""`headgate maintain --apply` again and again, as a cron job would, and how each round ended."""

from collections.abc import Callable

from tests.chaos import parts
from tests.chaos.judgement import Command
from tests.chaos.parts import Overdue, wait_until


class Upkeep:
    """One round at a time. `rounds` are those that are over."""

    def __init__(
        self, begin: Callable[[], parts.Command], now_s: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self._begin, self._now_s, self._say = begin, now_s, say
        self._under_way: tuple[parts.Command, float] | None = None
        self.rounds: list[Command] = []

    def turn(self, every_s: float) -> None:
        if self._under_way is None:
            if not self.rounds or self._now_s() - self.rounds[-1].end_s >= every_s:
                self._under_way = self._begin(), self._now_s()
            return
        command, start_s = self._under_way
        if not command.runs:
            self.rounds.append(Command(start_s, self._now_s(), command.exit_code or 0))
            if command.exit_code == 0:
                command.output.unlink(missing_ok=True)
            self._under_way = None

    def end(self, deadline_s: float) -> None:
        """The round under way may come to its end. One that does not is killed and told: it is evidence, and what the
        run has shown besides is not lost with it."""
        if self._under_way is None:
            return
        command, start_s = self._under_way
        try:
            wait_until(lambda: not command.runs, "the last round of upkeep to end", deadline_s)
            self.turn(0)
        except Overdue as error:
            self._say(str(error))
            command.kill()
            self.rounds.append(Command(start_s, self._now_s(), command.exit_code or 0, hung=True))
            self._under_way = None

    def kill(self) -> None:
        if self._under_way is not None and self._under_way[0].runs:
            self._under_way[0].kill()
