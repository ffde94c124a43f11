"""The pages that commands write, as templates."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


def page_template(package: str, folder: str) -> Template:
    """Return `page.html.jinja` of a folder of a package; values are escaped, and missing ones are errors."""
    pages = Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template("page.html.jinja")
