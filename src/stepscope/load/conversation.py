"""A conversation under way: each turn's prompt holds the answers that were given."""

from collections.abc import Callable, Sequence

from stepscope.load.datasets.items import Turn
from stepscope.load.stock import Prompt

#: Messages so far and tokens asked for, to what follows a request's head.
Build = Callable[[list[dict[str, str]], int | None], bytes]


class Talk:
    """A conversation.

    Args:
        number: Its number in the cell.
        index: Index of its first turn; the others follow it.
        turns: What the user says.
        build: Makes a request of the messages so far.

    Attributes:
        number: Its number in the cell.
        n_left: Turns that are still to come.
    """

    __slots__ = ("_at", "_build", "_index", "_said", "_turns", "number")

    def __init__(
        self, number: int, index: int, turns: Sequence[Turn], build: Build
    ) -> None:
        self.number = number
        self._index, self._turns, self._build = index, turns, build
        self._said: list[dict[str, str]] = []
        self._at = 0

    @property
    def n_left(self) -> int:
        """Turns after the present one."""
        return len(self._turns) - 1 - self._at

    def opening(self, due_ns: int | None) -> Prompt:
        """Return the first turn."""
        return self._prompt(due_ns)

    def go_on(self, answer: str) -> Prompt | None:
        """Return the turn that follows the answer to the present one; None: the end."""
        if not self.n_left:
            return None
        self._said.append({"role": "assistant", "content": answer})
        self._at += 1
        return self._prompt(None)

    def break_off(self) -> list[Prompt]:
        """Return the turns that will never be sent, without their requests."""
        at, self._at = self._at, len(self._turns) - 1
        return [
            Prompt(
                index=self._index + turn,
                rest=b"",
                output_tokens=self._turns[turn].output_tokens,
                talk=self,
                turn=turn,
            )
            for turn in range(at + 1, len(self._turns))
        ]

    def _prompt(self, due_ns: int | None) -> Prompt:
        turn = self._turns[self._at]
        self._said.append({"role": "user", "content": turn.text})
        return Prompt(
            index=self._index + self._at,
            rest=self._build(self._said, turn.output_tokens),
            output_tokens=turn.output_tokens,
            due_ns=due_ns,
            talk=self,
            turn=self._at,
        )
