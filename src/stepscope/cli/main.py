"""The command line: one file per command, loaded only when it is called.

This room alone prints and exits. Errors raised on purpose become one line on stderr
and their exit code; anything else is a defect and says so.
"""

import importlib
import io
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from stepscope import __version__
from stepscope.cli.inert import Inert
from stepscope.cli.readers import ReaderLeftError, forget_stdout, noticing_readers
from stepscope.errors import RecipeError, StepscopeError

#: command -> (module, attribute, one line of help). The one place to add a command.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("demo", "demo", "Boot the embedded engine, measure and explain it."),
    "run": ("run", "run", "Measure what a recipe asks for."),
    "bench": ("bench", "bench", "The load client alone, in vllm bench serve's words."),
    "import": ("import_", "import_", "Turn foreign results into a run."),
    "analyze": ("analyze", "analyze", "Cells, identities, step model, board."),
    "log": ("log", "log", "Read a server log: settings, memory, boot verdict."),
    "trace": ("trace", "trace", "A decode step's budget from kernel timelines."),
    "floor": ("floor", "floor", "The step time that no implementation can beat."),
    "plan": ("plan", "plan", "What to measure next, and its recipe."),
    "predict": ("predict", "predict", "Step and throughput where nobody measured."),
    "compare": ("compare", "compare", "Is the difference real?"),
    "trend": ("trend", "trend", "Many runs of one configuration over time."),
    "report": ("report", "report", "Write the page."),
    "query": ("query", "query", "SQL over runs."),
    "doctor": ("doctor", "doctor", "What this machine can measure."),
}


#: A line of an error is not longer, whatever names are in it.
_MOST_LINE = 4000


class _Lazy(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(
            importlib.import_module(f"stepscope.cli.{module}"), attribute
        )
        return command

    def invoke(self, ctx: click.Context) -> object:
        with noticing_readers():
            return super().invoke(ctx)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(n, text) for n, (_, _, text) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stepscope")
def cli() -> None:
    """Where does my LLM server's decode step go, and how do you know?"""


def entry() -> NoReturn:
    """Run the command line and exit with its code."""
    _be_able_to_print()
    try:
        code = cli.main(standalone_mode=False)
    except RecipeError as error:
        _fail(error, error.lines())
    except StepscopeError as error:
        _fail(error, (str(error),))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = "stepscope" if context is None else context.command_path
        text = " ".join(error.format_message().split()).rstrip(".")
        _say(f"{where}: {text}. Run {where} --help.")
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        print("stepscope: interrupted", file=sys.stderr)
        sys.exit(130)
    except ReaderLeftError:
        forget_stdout()
        sys.exit(0)
    except RecursionError:
        found = "it is nested too deeply to be read; expected the form of its kind."
        print(f"input: {found}", file=sys.stderr)
        sys.exit(4)
    except OSError as error:
        if os.environ.get("STEPSCOPE_DEBUG") == "1":
            raise
        where = error.filename or "output"
        wrong_path = isinstance(
            error, FileNotFoundError | NotADirectoryError | IsADirectoryError
        )
        do = " Check the path." if wrong_path and error.filename else ""
        _say(f"{where}: {error.strerror or error}.{do}")
        forget_stdout()
        sys.exit(2 if do else 3)
    except Exception as error:  # the last line of defence: one line, no traceback
        if os.environ.get("STEPSCOPE_DEBUG") == "1":
            raise
        print(
            f"stepscope: {type(error).__name__}: {error}; this is a defect in"
            " stepscope. Run it again with STEPSCOPE_DEBUG=1 and report the traceback.",
            file=sys.stderr,
        )
        sys.exit(3)
    sys.exit(code if isinstance(code, int) else 0)


def _be_able_to_print() -> None:
    """Print what the terminal can show of any text, and survive a closed stdout."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # for good
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = Inert(sys.stdout)


def _say(line: str) -> None:
    """Print one line on stderr, whatever names and foreign texts are in it."""
    if len(line) > _MOST_LINE:
        left_out = len(line) - _MOST_LINE
        half = _MOST_LINE // 2
        line = f"{line[:half]} ... ({left_out:,} characters) ... {line[-half:]}"
    safe = (c if c.isprintable() else ascii(c)[1:-1] for c in line)
    print("".join(safe), file=sys.stderr)


def _fail(error: StepscopeError, lines: tuple[str, ...]) -> NoReturn:
    if os.environ.get("STEPSCOPE_DEBUG") == "1":
        raise error
    for line in lines:
        _say(line)
    sys.exit(error.exit_code)
