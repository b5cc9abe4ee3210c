"""`python -m polyshot`, which torchrun can start too."""

from polyshot.cli import app

app()
