"""The vocabulary of the embedded model: byte-level BPE over ASCII, made by rule.

Every ordinary token is a piece of ASCII text, so a server never waits for the rest of
a character: one token is one chunk of the stream.
"""

from dataclasses import dataclass

#: End of text; also first and padding token. With ``ignore_eos`` the engine bans it,
#: and no other token is without text.
END = "<|endoftext|>"

_CONSONANTS = "bcdfghjklmnpqrstvwxyz"
_VOWELS = "aeiou"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, and the pairs that merge, first pair first."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]


def written(text: str) -> str:
    """Return text as byte-level BPE writes it: blanks as letters above ASCII.

    Source: GPT-2's table of bytes; unprintable bytes take the characters from 256 on.
    """
    return "".join(c if "!" <= c <= "~" else chr(256 + ord(c)) for c in text)


def vocabulary(n_tokens: int) -> Vocabulary:
    """Return a vocabulary: ASCII, syllables, words of one and two syllables.

    Args:
        n_tokens: From 512 to 8192; the last kind of token is cut there.
    """
    if not 512 <= n_tokens <= 8192:
        raise ValueError(f"{n_tokens} tokens")
    letters = [written(chr(c)) for c in (9, 10, *range(32, 127))]
    syllables = [(c, v) for c in _CONSONANTS for v in _VOWELS]
    pairs = [*syllables, *((written(" "), c + v) for c, v in syllables)]
    pairs += [(a, b) for a in "0123456789" for b in "0123456789"]
    joined = [c + v for c, v in syllables]
    n = len(joined)
    # By diagonals, so that every syllable begins some word before the cut.
    pairs += [(joined[i], joined[(i + d) % n]) for d in range(n) for i in range(n)]
    pairs = pairs[: n_tokens - 1 - len(letters)]
    return Vocabulary(
        tokens=(END, *letters, *(a + b for a, b in pairs)),
        merges=tuple(f"{a} {b}" for a, b in pairs),
    )
