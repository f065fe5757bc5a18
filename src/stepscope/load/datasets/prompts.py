"""Files of words: single prompts, ShareGPT's conversations, and whole conversations."""

from collections.abc import Iterator
from typing import Any

from stepscope.load.datasets.items import Item, Turn
from stepscope.load.datasets.lines import bad, objects, text_of, tokens_of
from stepscope.load.spec import Source

_USERS = frozenset({"human", "user"})
_ANSWERERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard"})


def custom(source: Source) -> Iterator[Item]:
    """Yield prompts from lines such as ``{"prompt": "...", "output_tokens": 10}``.

    Raises:
        RecipeError: A line is not of that form.
    """
    path = str(source.path)
    for line, entry in objects(path):
        n = None
        if entry.get("output_tokens") is not None:
            n = tokens_of(path, line, entry, "output_tokens")
        turn = Turn(text=text_of(path, line, entry, "prompt"), output_tokens=n)
        yield Item(line=line, turns=(turn,))


def sharegpt(source: Source) -> Iterator[Item]:
    """Yield the first words of each conversation, with the answer that followed.

    Entries with fewer than two turns are passed over, as ``vllm bench serve`` does.

    Raises:
        RecipeError: The file is no list of conversations.
    """
    path = str(source.path)
    for line, entry in objects(path):
        said = _said(path, line, entry)
        if len(said) >= 2 and said[0][1]:
            turn = Turn(text=said[0][1], answer=said[1][1])
            yield Item(line=line, turns=(turn,))


def conversations(source: Source) -> Iterator[Item]:
    """Yield whole conversations: what the user says in each turn.

    The file's answers give lengths alone: what is sent holds the server's own. An
    entry with a ``messages`` list in the form of the chat endpoint, or with ShareGPT's
    ``conversations``; ``output_tokens`` beside a user's words sets a length.

    Raises:
        RecipeError: The file is no list of conversations.
    """
    path = str(source.path)
    for line, entry in objects(path):
        said = _said(path, line, entry)
        turns: list[Turn] = []
        for at, (role, text, n) in enumerate(said):
            if role not in _USERS:
                continue
            if not text:
                bad(path, line, f"turn {at} says nothing", "words")
            after = said[at + 1] if at + 1 < len(said) else None
            answer = after[1] if after and after[0] in _ANSWERERS else None
            turns.append(Turn(text=text, output_tokens=n, answer=answer))
        if turns:
            yield Item(line=line, turns=tuple(turns))


def _said(
    path: str, line: int, entry: dict[str, Any]
) -> list[tuple[str, str, int | None]]:
    """Return who said what, and the length asked for, in order."""
    turns = entry.get("messages", entry.get("conversations"))
    if not isinstance(turns, list):
        bad(path, line, 'no "conversations" and no "messages"', "a list of turns")
    found = []
    for turn in turns:
        if not isinstance(turn, dict):
            bad(path, line, f"a turn is a {type(turn).__name__}", "an object")
        role = turn.get("role", turn.get("from"))
        text = turn.get("content", turn.get("value"))
        if not isinstance(role, str) or not isinstance(text, str):
            bad(path, line, "a turn without a role and words", "role and content")
        n = None
        if turn.get("output_tokens") is not None:
            n = tokens_of(path, line, turn, "output_tokens")
        found.append((role, text, n))
    return found
