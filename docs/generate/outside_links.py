"""Links that leave docs/ (CONTRIBUTING.md, result files, figures) lead to copies inside the built site.

On GitHub the pages link to files of the repository, such as `../benchmarks/results/gp.json`. The site has only docs/.
So every such file is added to the site under `repository/`, and the links are changed to it.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
ROOT = Path(__file__).parents[2]


def on_files(files: Files, config: Any) -> Files:
    """Add the files outside docs/ to which a page links, and those to which these link in turn."""
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for link in _LINK.finditer("".join(_CODE.split(page.content_string)[::2])):
            target = _outside(page.src_uri, link[2])
            if target is not None and files.get_file_from_path(f"repository/{target}") is None:
                new = File.generated(config, f"repository/{target}", abs_src_path=str(ROOT / target))
                files.append(new)
                if new.is_documentation_page():
                    waiting.append(new)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links that leave docs/ to the copies."""
    here = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        target = _target(here, link[2])
        if target is None:
            return link[0]
        return f"{link[1]}{posixpath.relpath(target, posixpath.dirname(here) or '.')}{link[3]}"

    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(moved, text) for text in parts[::2]]
    return "".join(parts)


def _repository_path(page: str, link: str) -> str | None:
    """The path in the repository that a link of a page leads to; None for a link to elsewhere."""
    if re.match(r"[a-z]+:|/", link):
        return None
    inside = page.startswith("repository/")
    home = page.removeprefix("repository/") if inside else f"docs/{page}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(home), link))


def _outside(page: str, link: str) -> str | None:
    path = _repository_path(page, link)
    return None if path is None or path.startswith("docs/") or not (ROOT / path).is_file() else path


def _target(page: str, link: str) -> str | None:
    """Where a link has to lead in the site, if that differs from what it says."""
    outside = _outside(page, link)
    if outside is not None:
        return f"repository/{outside}"
    path = _repository_path(page, link)
    if page.startswith("repository/") and path is not None and path.startswith("docs/"):
        return "index.md" if path == "docs" else path.removeprefix("docs/")
    return None
