"""What a file of prompts holds, whatever its form."""

import msgspec


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What a user says in a conversation.

    Attributes:
        text: The words.
        output_tokens: Length of the answer that is asked for; None: unknown.
        answer: The answer that the file holds, to take a length from; None: none.
    """

    text: str
    output_tokens: int | None = None
    answer: str | None = None


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: turns with words, or lengths of a request whose words are not kept.

    Attributes:
        line: Where it stands in the file, from 1; in one JSON list its place there.
        turns: What is said; one for a prompt; empty where only lengths are known.
        input_tokens: Length of the prompt.
        output_tokens: Length of the answer.
        blocks: Hashes of the prompt's blocks, as the trace has them: equal ones are
            equal tokens.
        at_ns: When it was sent after the trace's own zero; None: nobody says.
    """

    line: int
    turns: tuple[Turn, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    at_ns: int | None = None

    @property
    def n_requests(self) -> int:
        """Requests that it makes."""
        return max(1, len(self.turns))
