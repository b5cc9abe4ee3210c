"""The command `polyshot`, also as `python -m polyshot`."""

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
    app(prog_name="polyshot")


if __name__ == "__main__":
    main()
