"""Every link of every page leads somewhere, and every file that a page names is there."""

import re
from pathlib import Path

import pytest
from markdown_pages import PAGES, ROOT, anchors, inline_code, links, name_of

_FILE = re.compile(r"(?:src|tests|docs|paper|benchmarks|examples|results)/[\w./*+-]*[\w*]")
_GENERATED = {  # pages that only the built site has; test_site.py checks links to them
    ROOT / "docs" / path for path in re.findall(r"reference/\w+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))
}
_MODULE = re.compile(r"(?:cli|report|evaluation|runs|methods|estimator|data|gp|system)/[\w/]+\.py")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for link in links(page):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if target in _GENERATED:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page: Path) -> None:
    code = inline_code(page)
    named = [path for path in code if _FILE.fullmatch(path)]
    named += [f"src/polyshot/{path}" for path in code if _MODULE.fullmatch(path)]
    assert [path for path in named if not any(ROOT.glob(path))] == []
