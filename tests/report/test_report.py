import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from made_results import all_protocols, make_result
from polyshot.cli import app
from polyshot.data import load
from polyshot.data.packed import write_packed
from polyshot.errors import InputError
from polyshot.evaluation.comparison import compare_paired
from polyshot.evaluation.measures import MEASURES, Measure
from polyshot.evaluation.metrics import Interval
from polyshot.evaluation.results import write_result
from polyshot.report.findings import findings
from polyshot.report.page import make_report
from polyshot.report.reliability import write_reliability
from polyshot.report.summary import summary_tables
from polyshot.report.svg import nice_ticks

FIGURES = (
    "reliability", "confidence", "risk-coverage", "roc", "scores", "corruption-bars", "corruption-samples",
    "episodes-drawn",
)  # fmt: skip
HOSTILE = "<b>x</b>\"'&$"
# Writes into the page what a reader would see go wrong: what has no size, what is cut off.
_LOOK = """<script>
  const drawn = [...document.querySelectorAll("figure svg, figure img")];
  const small = drawn.filter(e => e.getBoundingClientRect().width < 5);
  const broken = [...document.images].filter(i => !i.complete || i.naturalWidth === 0);
  const wide = document.documentElement.scrollWidth > innerWidth;
  const sizes = [...document.querySelectorAll("figure")].map(f => [f.id, f.getBoundingClientRect().height > 60]);
  document.body.dataset.seen = JSON.stringify({
    small: small.length, broken: broken.length, wide, figures: Object.fromEntries(sizes),
    dark: getComputedStyle(document.body).backgroundColor, images: document.images.length,
  });
</script>"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chars74k of ten digits, of which five are test classes."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (80, 28, 28), dtype=np.uint8)
    names = np.array(list("0123456789"))
    content = {"images": images, "labels": np.repeat(np.arange(10), 8), "class_names": names}
    write_packed(folder / "chars74k.npz", content)
    return folder


@pytest.fixture(scope="module")
def digest(root: Path) -> str:
    return load("chars74k", "test", root).digest


@pytest.fixture(scope="module")
def page(root: Path, digest: str) -> str:
    ours = all_protocols("ove", strength=2.0, test_data=digest)
    return make_report([*ours, *all_protocols(HOSTILE, method="protonet", strength=0.5, test_data=digest)], root)


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(page: str) -> None:
    tree = ElementTree.fromstring(page.partition("\n")[2])
    assert {e.tag for e in tree.iter()}.isdisjoint({"script", "link", "iframe", "object"})
    assert not re.search(r"https?:|url\(|@import|href=|//\w+\.", page)
    sources = [e.get("src", "") for e in tree.iter("img")]
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    metas = {e.get("name"): e.get("content") for e in tree.iter("meta")}
    assert metas["viewport"] == "width=device-width, initial-scale=1"
    assert "prefers-color-scheme: dark" in page
    ids = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    assert set(FIGURES) <= set(ids)


def test_names_are_text_and_pictures_have_descriptions(page: str) -> None:
    assert "<b>x</b>" not in page
    tree = ElementTree.fromstring(page.partition("\n")[2])
    assert HOSTILE in [e.text for e in tree.iter("summary")]
    assert all(e.get("alt") for e in tree.iter("img"))
    assert all(e.get("aria-label") or e.get("aria-hidden") == "true" for e in tree.iter("svg"))
    labels = [e.get("aria-label") or "" for e in tree.iter("svg")]
    assert any(f"Reliability diagram of {HOSTILE}" in label for label in labels)


def test_a_sentence_gives_the_paired_difference_its_interval_and_its_p_value() -> None:
    good, bad = make_result("good", strength=2.0), make_result("bad", strength=0.2)
    paired = compare_paired(good.episodes["accuracy"], bad.episodes["accuracy"], seed=0)
    first = findings([good, bad])["in-short"][0]
    d = paired.difference
    assert first.startswith(f"good is {100 * d.estimate:.1f} points more accurate than bad on the same 20 episodes")
    assert f"95 % interval {100 * d.low:+.1f} to {100 * d.high:+.1f}, p < 0.001" in first
    assert re.match(r"bad is [\d.]+ points less accurate than good", findings([bad, good])["in-short"][0])


def test_the_page_says_which_runs_its_sentences_and_episodes_leave_out(root: Path, digest: str) -> None:
    runs = [make_result(f"run{i}", strength=1 + i, test_data=digest) for i in range(6)]
    said = "Sentences compare run0 with the first 3 of 5 others only; the tables and the comparison files have all."
    drawn = "Drawn: 3 of 6 runs."
    page = make_report(runs, root)
    assert page.count(said) == page.count(drawn) == 1
    assert "than run3" in page
    assert "than run4" not in page
    assert findings(runs)["in-short"][-1] == said
    few = make_report(runs[:3], root)
    assert "Sentences compare" not in few
    assert "Drawn:" not in few
    noisy = [make_result(r.run, "corruption", corruption="defocus_blur") for r in runs]
    scaled = [make_result(r.run, temperature=2.0) for r in runs]
    sentences = findings([*runs, *noisy, *scaled])["in-short"]
    assert [s for s in sentences if "Sentences compare" in s] == [said.replace("5 others", "10 others")]


def test_a_difference_that_is_not_significant_is_not_called_better() -> None:
    one = make_result("one")
    shifted = np.minimum(1.0, one.episodes["accuracy"] + 0.01 * (-1) ** np.arange(20))
    other = replace(make_result("other"), episodes={**one.episodes, "accuracy": shifted})
    assert "one and other do not differ significantly in accuracy" in findings([one, other])["in-short"][0]
    elsewhere = replace(other, settings=replace(other.settings, seed=1))
    assert "not tested, because they were evaluated on different episodes" in findings([one, elsewhere])["in-short"][0]
    slim = other.slim(())
    assert "not tested, because there are no per-episode figures" in findings([one, slim])["in-short"][0]


def test_the_sentence_on_unknown_classes_names_each_score_and_no_number_twice() -> None:
    result = make_result(protocol="out-of-episode")
    auroc, entropy = (f"{100 * result.summary[name].estimate:.1f} %" for name in ("auroc", "auroc_entropy"))
    (sentence,) = findings([result])["out-of-episode"]
    assert sentence.endswith(f"in {auroc} of such pairs by the method's own score and {entropy} by entropy.")
    same = replace(result, summary=result.summary | {"auroc_entropy": result.summary["auroc"]})
    (sentence,) = findings([same])["out-of-episode"]
    assert sentence.count(auroc) == 1
    assert sentence.endswith(f"in {auroc} of such pairs by the method's own score.")


def test_a_report_of_slim_results_says_what_is_missing(root: Path) -> None:
    slim = [r.slim(()) for r in all_protocols("ove")]
    page = make_report(slim, root)
    ElementTree.fromstring(page.partition("\n")[2])
    for what in ("confidence histogram", "risk-coverage curve", "ROC curves", "score histogram"):
        assert f"Not drawn, because the results have no {what}: ove" in page
    assert 'id="reliability"' in page
    assert 'id="roc"' not in page
    bare = make_report([replace(r, reliability=None, trained_episodes=None) for r in slim], root)
    assert "Not drawn, because the results have no reliability bins: ove, ove (temperature)." in bare


def test_a_new_measure_and_a_plugins_names_need_no_line_here(root: Path) -> None:
    summary = make_result().summary | {"top_2": Interval(0.75, 0.7, 0.8)}
    result = replace(make_result(method="my-method", scenario="my-scenario"), summary=summary)
    page = make_report([result], root)
    assert "ove is my-method, 7 training episodes" in page
    assert "my-scenario, 2-way 2-shot" in page
    MEASURES.register("top_2", Measure("top_2", "Top-2 accuracy", "right class among the top two", percent=True))
    try:
        page = make_report([result], root)
        assert [m.title for m in summary_tables([result])[0].measures][-1] == "Top-2 accuracy"
    finally:
        MEASURES.unregister("top_2")
    assert "<dd>right class among the top two</dd>" in page
    assert "75.0&#160;%<small>70.0 to 80.0</small>" in page


def test_over_and_under_confidence_are_read_from_the_bins() -> None:
    under, over = make_result("under", temperature=5.0), make_result("over", temperature=0.1)
    sentences = findings([under, over])["calibration"]
    assert "under-confident" in sentences[0]
    assert "over-confident" in sentences[1]


def test_the_best_is_starred_and_ties_on_the_same_episodes_are_too(root: Path) -> None:
    good, same, bad = (make_result(run, strength=s) for run, s in (("good", 2.0), ("same", 2.0), ("bad", 0.2)))
    tree = ElementTree.fromstring(make_report([bad, good, same], root).partition("\n")[2])
    rows = {row[0].findtext("span") or "".join(row[0].itertext()): row for row in tree.iter("tr") if len(row) == 5}
    stars = {name: "".join(row[1].itertext()).count("★") for name, row in rows.items() if name != "run"}
    assert stars == {"bad": 0, "good": 1, "same": 1}


def test_protocols_that_were_not_run_are_left_out_with_a_line(root: Path) -> None:
    page = make_report([make_result()], root)
    assert page.count("Not evaluated") == 2
    assert "polyshot evaluate --protocol out-of-episode" in page
    assert 'id="roc"' not in page
    assert 'id="reliability"' in page
    only_outside = make_report([make_result(protocol="out-of-episode")], root)
    assert 'id="roc"' in only_outside
    assert 'id="reliability"' not in only_outside


def test_without_the_data_the_page_says_so_and_draws_the_rest(tmp_path: Path) -> None:
    page = make_report(all_protocols("ove"), tmp_path)
    assert "The images are not drawn because the data set is not available" in page
    assert "<img" not in page
    assert 'id="corruption-bars"' in page


def test_images_of_other_data_are_not_drawn(root: Path) -> None:
    page = make_report([make_result(protocol="out-of-episode", test_data="another")], root)
    assert "The images are not drawn because the results are of other data than chars74k test here" in page
    assert "<img" not in page


def test_episodes_mark_errors_and_missed_outsiders(root: Path, digest: str) -> None:
    result = make_result(protocol="out-of-episode", test_data=digest)
    tree = ElementTree.fromstring(make_report([result], root).partition("\n")[2])
    tiles = [e for e in tree.iter("div") if "tile" in (e.get("class") or "").split()]
    assert len(tiles) == 2 * (2 * 3 + 2 * 3)  # episodes x (known + unknown classes x 3 queries)
    for tile in tiles:
        text = "".join(tile.itertext())
        unknown = "unknown" in (tile.find("img").get("alt") or "")  # type: ignore[union-attr]
        assert ("failed" in (tile.get("class") or "")) == ("✗" in text)
        assert not unknown or ("⚑" in text) != ("✗" in text)


def test_several_tasks_have_figures_of_their_own(root: Path) -> None:
    page = make_report([make_result(shots=1), make_result(shots=2)], root)
    ElementTree.fromstring(page.partition("\n")[2])
    assert 'id="reliability-2"' in page
    assert "Omniglot→Chars74K, 2-way 1-shot: ove assigns" in page


def test_nothing_and_the_same_twice_are_errors(root: Path) -> None:
    with pytest.raises(InputError, match="at least one result"):
        make_report([], root)
    with pytest.raises(InputError, match="there are two results of ove for accuracy"):
        make_report([make_result(), make_result()], root)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.087), (-9.67, 0.85), (0.8, 1), (-23, 2.2)])
def test_ticks_are_few_round_and_within(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert 3 <= len(ticks) <= 6
    assert low - 1e-9 <= ticks[0] < ticks[-1] <= high + 1e-9
    np.testing.assert_allclose(np.diff(ticks), ticks[1] - ticks[0])


def test_the_command_writes_the_page(tmp_path: Path, root: Path) -> None:
    write_result(tmp_path / "results" / "accuracy.json", make_result())
    out = tmp_path / "new" / "report.html"
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(out), "--root", str(root)])
    assert done.exit_code == 0, done.output
    assert "written:" in done.stdout
    assert out.read_text("utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the executable chromium")
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_chromium_shows_every_figure_without_an_error(page: str, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(page.replace("</body>", f"{_LOOK}</body>"), encoding="utf-8")
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    match = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert match is not None
    seen = json.loads(match[1].replace("&quot;", '"'))
    assert seen["figures"] == dict.fromkeys(FIGURES, True)
    assert (seen["small"], seen["broken"], seen["wide"]) == (0, 0, False)
    assert seen["images"] == page.count("<img")
    assert seen["dark"] == ("rgb(20, 23, 27)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_reliability_diagrams_are_written_as_png_and_pdf(tmp_path: Path) -> None:
    write_result(tmp_path / "ove" / "results" / "accuracy.json", make_result())
    figures = tmp_path / "figures"
    command = ["report", str(tmp_path / "ove"), "--out", str(tmp_path / "r.html"), "--figures", str(figures)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    stem = "reliability-omniglot-chars74k-2-way-2-shot"
    assert (figures / f"{stem}.png").read_bytes()[:4] == b"\x89PNG"
    assert (figures / f"{stem}.pdf").read_bytes()[:4] == b"%PDF"


def test_tasks_whose_names_differ_in_other_letters_alone_have_a_file_each(tmp_path: Path) -> None:
    results = [make_result("ove", scenario=f"folder:{name}") for name in ("ä", "ö")]
    assert len(set(write_reliability(results, tmp_path))) == 4


def test_results_without_reliability_bins_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no result has a reliability diagram"):
        write_reliability([make_result(protocol="out-of-episode")], tmp_path)
