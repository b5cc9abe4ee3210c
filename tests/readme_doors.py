"""Go through the README's three doors: its Python blocks and its commands, with the polyshot that is installed.

    python tests/readme_doors.py

`make release-check` runs this with the wheel in an empty environment, so it needs nothing but polyshot and its extras.
Commands that train and evaluate get a small budget; those that wait for a reader only have to know their options.
"""

import contextlib
import io
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
SHOWN = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
SMALL = {
    "classify": ["--force"],
    "train": ["--epochs", "2", "--episodes-per-epoch", "5", "--validation-episodes", "5"],
    "evaluate": ["--episodes", "5", "--batches", "1"],
    "label": ["--help"],
    "serve": ["--help"],
    "demo": ["--help"],
}
PAPER = ("--budget", "quick")  # what SMALL stands in for


def printed(code: str) -> str:
    """What a block prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})  # the README's own code
    return out.getvalue()


def commands() -> list[list[str]]:
    """The `polyshot` commands of the README's console blocks, with a small budget."""
    lines = "".join(re.findall(r"```console\n(.*?)```", README, re.DOTALL)).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("polyshot ")]
    return [[w for w in command if w not in PAPER] + SMALL.get(command[0], []) for command in words]


def make_items(folder: Path) -> None:
    """Write what the README's commands read: examples/ and photos/ with pictures, and tickets.csv."""
    from PIL import Image

    for colour in ("red", "green", "blue"):
        (folder / "examples" / colour).mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (40 + k, 40), colour).save(folder / "examples" / colour / f"{k}.png")
    (folder / "photos").mkdir()
    Image.new("RGB", (50, 50), "darkred").save(folder / "photos" / "a.png")
    rows = ["refund my order,money", "money back please,money", "cannot log in,login", "password is rejected,login"]
    (folder / "tickets.csv").write_text("\n".join(["message,category", *rows, "I want my money back,"]), "utf-8")


def main() -> None:
    """Run every block and command; stop at the first that fails."""
    import polyshot

    print(f"polyshot {polyshot.__version__} in {Path(polyshot.__file__).parent}")
    for k, (code, shown) in enumerate(SHOWN):
        if (found := printed(code)) != shown:
            sys.exit(f"Python block {k + 1} of the README prints\n{found}\ninstead of\n{shown}")
        print(f"Python block {k + 1} prints what is shown")
    with tempfile.TemporaryDirectory() as folder:
        make_items(Path(folder))
        for words in commands():
            start = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "polyshot", *words], cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                sys.exit(f"polyshot {shlex.join(words)}\n{done.stdout}{done.stderr}")
            print(f"polyshot {shlex.join(words)}: {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
