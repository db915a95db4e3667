import re
import warnings
from html.parser import HTMLParser

import pytest

from odekit.errors import OdekitWarning
from odekit.report import write_report
from odekit.reproduce import discover, run

VOID = {"meta", "img", "br", "hr", "input", "link"}


class Checker(HTMLParser):
    """Well-formedness: every element closed in order; and what the page refers to."""

    def __init__(self):
        super().__init__()
        self.open, self.references, self.seen = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.references += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def page(doe2030, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OdekitWarning)  # the broken neighbour
        known = discover()
    out = tmp_path / "out"
    run([known["doe2030/also-good"]], out, workers=1)
    outcomes = run([known["doe2030/good"], known["doe2030/raises"]], out, workers=1)
    return write_report(out / "report.html", outcomes, tuple(known.values())).read_text()


def test_the_page_is_well_formed_and_self_contained(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert all(reference.startswith(("data:image/", "#")) for reference in checker.references)
    assert not re.search(r"@import|url\(|<script|<link", page)


def test_the_page_shows_pictures_equations_numbers_and_versions(page):
    assert page.count('src="data:image/svg+xml;base64,') == 2  # this run's and the earlier one's
    assert "<math" in page
    assert "<mover" in page  # the dot of \dot{x} came out as MathML
    assert "A curve &lt; that falls." in page
    assert '<td class="number">0.25</td>' in page
    assert "curve (3 values)" in page
    assert "numpy 2" in page


def test_a_failure_is_on_the_page(page):
    assert "1 of 2 failed" in page
    assert "ArithmeticError: no such limit" in page
