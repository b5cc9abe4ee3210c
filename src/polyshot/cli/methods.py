"""`polyshot methods`."""

import sys

from polyshot.cli.messages import say


def methods() -> None:
    """List the methods with their options and defaults."""
    from polyshot.methods import METHODS
    from polyshot.system.settings import keyword_settings

    for name, method in METHODS.items():
        citation = (sys.modules[method.__module__].__doc__ or "").partition("\n\n")[0]
        say(f"{name}: {(method.__doc__ or '').splitlines()[0]}\n  {' '.join(citation.split())}")
        for option in keyword_settings(method).values():
            say(f"    {option.name} = {option.default}   ({option.kind})")
            if option.help:
                say(f"        {option.help}")
