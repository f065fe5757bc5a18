"""Templates of every page: escaping, inert text and the style sheet, set up once."""

from functools import cache
from importlib import resources

from jinja2 import (
    Environment,
    PackageLoader,
    StrictUndefined,
    Template,
    select_autoescape,
)
from markupsafe import Markup

from stepscope.report.inert import finalize


def template(name: str) -> Template:
    """Return a template of ``templates/``.

    All text put into it is escaped and made inert; an unknown name is an error.
    """
    return _environment().get_template(name)


@cache
def css() -> Markup:
    """Return the style sheet of every page."""
    file = resources.files("stepscope.report").joinpath("templates/page.css")
    return Markup(file.read_text(encoding="utf-8"))  # noqa: S704 - of this package


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("stepscope.report"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
