"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Root = Annotated[
    Path | None, typer.Option(help="Folder of the packed data sets. Default: $POLYSHOT_DATA, or else the cache.")
]
Device = Annotated[str | None, typer.Option(help="Device of torch. Default: cuda if there is one, or else cpu.")]
