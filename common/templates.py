"""The templates of static pages. Only reports import this module, since nodes and tools run without Jinja2."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jinja2


def template_of(package: str, name: str, filters: Mapping[str, Callable[..., object]]) -> jinja2.Template:
    """Return a template beside the modules of a package. It escapes text, and a name that it does not get is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, package_path="."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name)
