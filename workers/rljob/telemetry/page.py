"""What every page has in common: templates that escape all texts."""

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def page_environment(*packages: str) -> Environment:
    """Templates of ``packages`` and, for what all pages share, of this one."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "rljob.telemetry")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
