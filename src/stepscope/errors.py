"""Four families of error, by whose fault it is; each knows its exit code.

A library raises; only ``stepscope.cli`` prints and exits.
"""


class StepscopeError(Exception):
    """Root of every error raised on purpose.

    The text is one line: *where: what was found; what was expected. What to do.*
    """

    exit_code = 3

    def __init__(
        self, where: str, found: str, expected: str = "", do: str = ""
    ) -> None:
        self.where = where
        self.found = found
        self.expected = expected
        self.do = do
        text = f"{where}: {found}"
        if expected:
            text += f"; {expected}"
        text = text.rstrip(".") + "."
        if do:
            text += f" {do.rstrip('.')}."
        super().__init__(" ".join(text.split()))


class RecipeError(StepscopeError):
    """The request is wrong: usage, recipe, or a path that does not exist."""

    exit_code = 2

    def __init__(
        self,
        where: str,
        found: str,
        expected: str = "",
        do: str = "",
        *,
        also: tuple["RecipeError", ...] = (),
    ) -> None:
        super().__init__(where, found, expected, do)
        self.also = also

    def lines(self) -> tuple[str, ...]:
        """Return one line for each problem, this one first."""
        return (str(self), *(str(other) for other in self.also))


class SessionError(StepscopeError):
    """The machine or the server failed."""

    exit_code = 3


class ArchiveError(StepscopeError):
    """The archive or an input file is damaged or of an unknown form."""

    exit_code = 4


class RefusedError(StepscopeError):
    """The evidence cannot answer that question."""

    exit_code = 5
