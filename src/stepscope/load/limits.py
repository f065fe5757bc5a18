"""When an answer is given up: it came to nothing, or it would never end.

Looked at now and then, never for each token. A server may keep a connection busy for
ever without answering: comments, parts of an event, events without content, or more
tokens than were asked for. Silence ends the first two. The others are bounded by their
number, and everything by the time that one request may take.
"""

from dataclasses import dataclass
from typing import NamedTuple

from stepscope.load.response import Response
from stepscope.load.spec import LoadSpec
from stepscope.units import ns, seconds

#: An answer of so many times the tokens asked for is none of this request. The count is
#: the server's own; with speculative decoding too it ends a few tokens above at most.
_TIMES_TOKENS = 2
#: The same of events. A server may send a token in parts, down to single characters.
_TIMES_EVENTS = 16
#: What both may be above that: events of a prompt's progress, pings as events.
FURTHER = 1_000
#: Fields of a request that limit its answer, and that give it several.
_LENGTHS = frozenset(
    {"max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens"}
)
_COPIES = frozenset({"n", "best_of", "n_cmpl"})
_NESTED = "sampling_params"
Failure = tuple[str, str]


class Seen(NamedTuple):
    """Instants of a request: sent, its last bytes, its last whole event."""

    sent_at_ns: int
    read_at_ns: int
    event_at_ns: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a response may take.

    Attributes:
        header_ns: To its header, and between two events.
        stall_ns: Between two bytes.
        total_ns: In all, from the send.
        copies: Answers that one request asks for.
        tokens: What ``extra_body`` asks for in place of the prompt's own; 0: nothing.
        bounded: False where ``extra_body`` asks for an answer of any length.
    """

    header_ns: int
    stall_ns: int
    total_ns: int
    copies: int = 1
    tokens: int = 0
    bounded: bool = True

    @property
    def surely_ns(self) -> int:
        """So long after its last event no response is given up for its silence."""
        return min(self.header_ns, self.stall_ns)

    def broken(
        self, response: Response, asked: int | None, seen: Seen, now_ns: int
    ) -> Failure | None:
        """Return the failure kind of a response in hand and one line about it.

        Args:
            response: As far as it was decoded.
            asked: Tokens that its prompt asked for; None: unknown.
            seen: When what came.
            now_ns: The present.
        """
        if not response.has_header:
            if now_ns - seen.sent_at_ns > self.header_ns:
                limit_s = seconds(self.header_ns)
                return "header-timeout", f"no response header in {limit_s:g} s"
        elif now_ns - seen.read_at_ns > self.stall_ns:
            return "stall", f"no byte for {seconds(self.stall_ns):g} s in mid-stream"
        elif now_ns - seen.event_at_ns > self.header_ns:
            limit_s = seconds(self.header_ns)
            return "stall", f"bytes, but no whole event for {limit_s:g} s"
        if now_ns - seen.sent_at_ns > self.total_ns:
            limit_s, n = seconds(self.total_ns), len(response.arrivals_ns)
            return "total-timeout", f"no end in {limit_s:g} s, {n} chunks of content"
        return self.too_long(response, asked)

    def too_long(self, response: Response, asked: int | None) -> Failure | None:
        """Return why a response is far longer than asked for; None: it is not.

        Asked of whole ones too, since which are seen in time is chance.
        """
        if asked is None or not self.bounded:
            return None
        wanted = max(asked, self.tokens) * self.copies
        n_tokens, n_events = response.stream.output_tokens or 0, response.n_events
        if n_tokens > _TIMES_TOKENS * wanted + FURTHER:
            came = f"{n_tokens} tokens by the server's count"
        elif n_events > _TIMES_EVENTS * wanted + FURTHER:
            came = f"{n_events} events"
        else:
            return None
        return "overlong", f"{came} where {wanted} tokens were asked for"


def limits_of(spec: LoadSpec) -> Limits:
    """Return the limits of a cell's responses."""
    fields = dict(spec.extra_body)
    inner = fields.get(_NESTED)
    if isinstance(inner, dict):
        fields |= inner
    lengths = [fields[name] for name in _LENGTHS & fields.keys()]
    copies = [fields[name] for name in _COPIES & fields.keys()]
    known = [n for n in lengths if isinstance(n, int) and n > 0]
    return Limits(
        header_ns=ns(spec.header_timeout_s),
        stall_ns=ns(spec.stall_timeout_s),
        total_ns=ns(spec.total_timeout_s),
        copies=max([1, *(n for n in copies if isinstance(n, int))]),
        tokens=max(known, default=0),
        bounded=len(known) == len(lengths),
    )
