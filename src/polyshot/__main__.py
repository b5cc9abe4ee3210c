"""The command `polyshot`, also as `python -m polyshot`."""

import io
import sys

from polyshot.system.extras import missing_extra


def main() -> None:
    """Run the command; without its packages, say how to install them."""
    try:
        from polyshot.cli import app
    except ModuleNotFoundError as error:
        if (message := missing_extra(error)) is None:
            raise
        sys.exit(f"error: {message}")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    app(prog_name="polyshot")


if __name__ == "__main__":
    main()
