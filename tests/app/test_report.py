"""The report: one page that needs nothing else, says everything, and shows foreign text as text."""

import json
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure
from run_folders import MIXTURE, PROXIES, WEIGHTS, edit, make_folder

from fedgr_secure.app.figures import FIGURES, mixture_counts, percent_axis, run_title, write_figures
from fedgr_secure.app.report import claim_words, noise_words, write_report
from fedgr_secure.app.runfolder import LossHistogram, read_run
from fedgr_secure.errors import InputError
from fedgr_secure.sections import NoiseConfig

VOID = {"meta", "img", "br", "hr", "input", "link"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags close in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words, self._open = [], [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def values(self, tag, key):
        return [value for t, k, value in self.attributes if (t, k) == (tag, key)]


@pytest.fixture(scope="module")
def fedgr(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("fedgr") / "run")
    return folder, write_report(folder).read_text()


DRAWN = [kind for kind in FIGURES if kind.file != "attacks.png"]  # nobody attacked these runs


@pytest.fixture(scope="module")
def fedavg(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("fedavg") / "run", "fedavg")
    return folder, write_report(folder).read_text()


@pytest.fixture
def undrawn(monkeypatch):
    """Skip the drawing, which is most of a report's time, where a test is about words."""
    monkeypatch.setattr("fedgr_secure.app.report.write_figures", lambda run, folder: ())


class TestPage:
    def test_it_asks_for_nothing_from_elsewhere(self, fedgr):
        page = Page(fedgr[1])
        links = [v for _, key, v in page.attributes if key in {"src", "href", "srcset", "action", "data", "poster"}]
        assert links and all(link.startswith("data:image/png;base64,") for link in links)
        assert "url(" not in fedgr[1] and "@import" not in fedgr[1] and "http:" not in fedgr[1]
        assert not {"script", "link", "iframe", "object"} & set(page.tags)

    def test_foreign_text_is_escaped(self, fedgr):
        page = Page(fedgr[1])
        assert "<y &" not in fedgr[1] and "<b>x" not in fedgr[1] and "<cpu>" not in fedgr[1]
        assert 'given_labels = "<y & noise>"' in page.text
        assert 'out = "runs/<b>x</b>"' in page.text
        assert "2.9 <cpu>" in page.text and "b" not in page.tags
        assert "--given-labels '<y & noise>'" in page.text

    def test_every_claim_is_printed_in_full(self, fedgr):
        text = Page(fedgr[1]).text
        assert str(WEIGHTS) in text and str(PROXIES) in text
        assert claim_words(WEIGHTS) in text and "The server sees" in claim_words(WEIGHTS)
        assert "No claim covers the model weights" not in text

    def test_it_says_the_result_and_the_cost(self, fedgr):
        run, text = read_run(fedgr[0]), Page(fedgr[1]).text
        assert run.summary is not None
        assert f"classifies {100 * run.summary.accuracy_last10:.1f}% of the test images" in text
        assert "12 rounds took 15.6 s and 24 local trainings" in text  # 12 rounds * 1.3 s, 2 updates each
        assert "All 6 clients have wrong labels" in text
        assert "of which 2 are drawn in each round" in text, "how many of these train is the method's affair"
        assert "The clients sent 1.4 MB in all, the server 2.9 MB" in text  # 12 * 120 kB, 12 * 240 kB

    @pytest.mark.parametrize(
        ("method", "trains", "has"),
        [
            ("fedfixer", "FedFixer trains one cnn model on", "; the model has 12,345 parameters."),
            ("central", "one cnn model trained on the pooled", "; the model has 12,345 parameters."),
            ("coteaching", "trains 2 cnn networks side by side on", "; the 2 networks together have 12,345"),
            ("dividemix", "trains 2 cnn networks side by side on", "; the 2 networks together have 12,345"),
        ],
    )
    def test_it_says_how_many_networks_there_are(self, tmp_path, undrawn, method, trains, has):
        text = Page(write_report(make_folder(tmp_path / "run", method)).read_text()).text
        assert trains in text and has in text

    def test_it_is_accessible(self, fedgr):
        page = Page(fedgr[1])
        assert page.values("html", "lang") == ["en"] and page.tags.count("title") == page.tags.count("h1") == 1
        assert len(page.values("img", "alt")) == page.tags.count("img") == page.tags.count("figcaption") == len(DRAWN)
        assert all(len(alt) > 20 for alt in page.values("img", "alt"))
        assert set(page.values("th", "scope")) == {"col", "row"}
        assert "details" in page.tags and "Show all 6 clients" in page.text

    def test_only_the_last_rounds_are_in_the_table(self, tmp_path, undrawn):
        text = write_report(make_folder(tmp_path / "run", rounds=40)).read_text()
        rows = [f'<th scope="row">{i}</th>' in text for i in (25, 26, 40)]
        assert rows == [False, True, True]


class TestFigures:
    def test_shares_are_percent_with_no_more_digits_than_they_need(self):
        axes = Figure().subplots()
        axes.set_ylim(0.5, 1.0)
        percent_axis(axes.yaxis)
        written = axes.yaxis.get_major_formatter().format_ticks([0.57, 0.9, 0.975, 1.0])
        assert written == ["57", "90", "97.5", "100"]

    def test_fedgr_has_all(self, fedgr):
        names = sorted(kind.file for kind in DRAWN)
        assert sorted(p.name for p in (fedgr[0] / "figures").iterdir()) == names
        assert all(p.read_bytes().startswith(b"\x89PNG") for p in (fedgr[0] / "figures").iterdir())

    def test_fedavg_has_only_those_that_apply(self, fedavg):
        assert sorted(p.name for p in (fedavg[0] / "figures").iterdir()) == ["accuracy.png", "cost.png", "noise.png"]
        assert Page(fedavg[1]).tags.count("img") == 3

    def test_a_quantity_that_does_not_apply_has_no_tile(self, fedgr, fedavg):
        assert "correlation (Pearson)" in Page(fedgr[1]).text
        assert "correlation (Pearson)" not in Page(fedavg[1]).text

    def test_a_quantity_that_does_not_apply_has_no_column(self, fedgr, fedavg):
        assert "Noise-rate Pearson" in Page(fedgr[1]).text
        assert "Noise-rate Pearson" not in Page(fedavg[1]).text and "Test loss (nats)" in Page(fedavg[1]).text

    def test_the_titles_and_units(self, fedgr):
        run = read_run(fedgr[0])
        for kind in DRAWN:
            figure = kind.draw(run)
            assert figure is not None and figure.get_suptitle()
            assert "FedGR on digits, seed 0" in figure.axes[0].get_title("left")
            for axes in figure.axes:
                assert axes.get_xlabel()
                assert axes.get_ylabel() or kind.file == "cost.png"  # the bars of the cost are named one by one

    def test_the_pearson_is_in_the_title_of_the_scatter(self, fedgr):
        figure = next(kind for kind in FIGURES if kind.file == "clients.png").draw(read_run(fedgr[0]))
        assert figure is not None
        assert figure.axes[0].get_title("left").endswith("Pearson 0.917")  # 1 - 1/12, the last round's

    def test_a_single_round_can_be_drawn(self, tmp_path):
        run = read_run(make_folder(tmp_path / "run", rounds=1))
        assert set(write_figures(run, tmp_path)) == {
            "accuracy.png",
            "noise.png",
            "losses.png",
            "clients.png",
            "cost.png",
        }

    def test_the_mixture_is_scaled_to_counts(self):
        """Summed over fine bins, the expected counts are the number of samples, split by the weights."""
        losses = LossHistogram(tuple(0.01 * i - 4 for i in range(1001)), (0,) * 999 + (700,), (0,) * 999 + (300,), None)
        counts = [mixture_counts(losses, MIXTURE, edge + 0.005) for edge in losses.edges[:-1]]
        assert sum(clean for clean, _ in counts) == pytest.approx(600, rel=1e-3)
        assert sum(wrong for _, wrong in counts) == pytest.approx(400, rel=1e-2)


NORMAL = {"means": [0.4, 2.2], "variances": [0.05, 0.4], "weights": [0.6, 0.4], "note": None}


class TestUnusualRuns:
    @pytest.mark.parametrize(
        "changes",
        [
            {"edges": [-1e307, *range(39), 1e307]},  # its square overflows
            {"mixture": NORMAL | {"variances": [0.0, 1.0]}},
            {"mixture": NORMAL | {"variances": [-1.0, 1.0]}},
            {"mixture": NORMAL | {"means": [0.0, 1e200]}},
        ],
    )
    def test_numbers_that_cannot_be_shown_are_refused(self, tmp_path, changes):
        folder = make_folder(tmp_path / "run")
        edit(folder / "losses.json", **changes)
        with pytest.raises(InputError, match=r"run: losses\.png cannot be made of this run's numbers: "):
            write_report(folder)

    def test_nor_are_those_that_only_the_page_cannot_show(self, tmp_path, undrawn):
        folder = make_folder(tmp_path / "run", finished=False)
        timings = [json.dumps({"round": i, "seconds": {"train": 1.7e308}}) for i in range(12)]
        (folder / "timings.jsonl").write_text("\n".join(timings))
        with pytest.raises(InputError, match=r"run: report\.html cannot be made of this run's numbers: "):
            write_report(folder)

    def test_the_titles_name_the_file_of_the_data(self, tmp_path):
        folder = make_folder(tmp_path / "run")
        config = json.loads((folder / "manifest.json").read_text())["config"]
        edit(folder / "manifest.json", config=config | {"data": {"dataset": "npz", "path": "there/xrays.npz"}})
        assert run_title(read_run(folder)) == "FedGR on xrays, seed 0"

    def test_an_unfinished_run_says_so(self, tmp_path, undrawn):
        text = Page(write_report(make_folder(tmp_path / "run", rounds=5, finished=False)).read_text()).text
        assert "This run is not finished: 5 of 5 rounds are done" in text
        assert "5 rounds took 6.0 s" in text  # from timings: 5 * (0.2 + 0.9 + 0.1)

    def test_a_run_without_rounds(self, tmp_path):
        folder = make_folder(tmp_path / "run", finished=False)
        (folder / "rounds.jsonl").write_text("")
        page = Page(write_report(folder).read_text())
        assert "No round has ended yet" in page.text and "img" not in page.tags
        assert "figures below" not in page.text

    def test_no_claims_are_not_privacy(self, tmp_path, undrawn):
        folder = make_folder(tmp_path / "run")
        edit(folder / "summary.json", privacy=[])
        assert "assume that everything is visible" in Page(write_report(folder).read_text()).text

    def test_started_from_python(self, tmp_path, undrawn):
        folder = make_folder(tmp_path / "run")
        edit(folder / "manifest.json", command=None)
        assert "The run was started from Python" in Page(write_report(folder).read_text()).text

    def test_text_that_looks_like_mathematics_is_drawn_as_text(self, tmp_path):
        folder = make_folder(tmp_path / "run")
        edit(folder / "summary.json", seconds_by_phase={"$\\frac{$": 1.0, "<i>": 0.0})
        text = write_report(folder).read_text()
        assert "<i>" not in text and "$\\frac{$" in Page(text).text

    def test_a_damaged_folder_is_refused(self, tmp_path):
        folder = make_folder(tmp_path / "run")
        (folder / "rounds.jsonl").write_text("{}\n")
        with pytest.raises(InputError, match=r"rounds\.jsonl, line 1: .* is missing"):
            write_report(folder)


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (NoiseConfig(label_noise="given"), "possibly wrong ones that came with the data"),
        (NoiseConfig(phi=0.4, rho_min=0.5, rho_max=0.5), "40% of the clients have wrong labels (symmetric noise): 50%"),
        (NoiseConfig(label_noise="mixed"), "All 7 clients have wrong labels (mixed noise): 20% to 70%"),
        (NoiseConfig(include_true_class=True), "a random class, maybe the true one"),
    ],
)
def test_the_noise_in_words(noise, words):
    assert words in noise_words(noise, 7)


def test_importing_the_application_modules_stays_cheap():
    modules = ", ".join(f"fedgr_secure.app.{name}" for name in ("runfolder", "figures", "report", "progress", "tables"))
    code = f"import sys, {modules}; print(sorted({{'torch', 'matplotlib', 'sklearn'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
