"""Packages that only some parts of polyshot need: which extra installs them."""

_EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "PIL": "cli",
    "matplotlib": "figures",
    "contourpy": "figures",
    "starlette": "app",
    "uvicorn": "app",
    "onnx": "onnx",
    "submitit": "slurm",
    "ray": "ray",
    "tensorboard": "tensorboard",
}


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return how to install the package whose import failed; None if no extra of polyshot has it."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    return f"{package} is not installed; install it with: pip install 'polyshot[{extra}]'" if extra else None
