import pytest

from odekit.errors import InputError, OdekitWarning
from odekit.reproduce import Target, choose, discover

KNOWN = {
    target.name: target
    for target in (
        Target("doe2030/a", "A", "m", main=True),
        Target("zhang2025/fig1", "One", "m", main=True),
        Target("zhang2025/extra", "More", "m"),
    )
}


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ((), ["zhang2025/fig1"]),
        (("zhang2025",), ["zhang2025/fig1", "zhang2025/extra"]),
        (("doe2030/a", "doe2030"), ["doe2030/a"]),
        (("zhang2025/extra", "all"), ["zhang2025/extra", "doe2030/a", "zhang2025/fig1"]),
    ],
)
def test_choice(names, chosen):
    assert [target.name for target in choose(names, KNOWN)] == chosen


def test_unknown_target_comes_with_a_suggestion():
    with pytest.raises(InputError, match="Did you mean 'zhang2025/fig1'"):
        choose(["zhang2025/fig2"], KNOWN)


def test_nothing_installed_is_said():
    with pytest.raises(InputError, match="No main target of zhang2025"):
        choose([], {})


@pytest.mark.parametrize("name", ["fig1", "../fig1", "a/../../b", "a/b/c", "/a", "a/"])
def test_a_name_cannot_leave_the_output_folder(name):
    with pytest.raises(InputError, match="paper/figure"):
        Target(name, "T", "m")


def test_discovery_finds_a_derivation_and_survives_a_broken_one(doe2030):
    with pytest.warns(OdekitWarning, match="broken2031.*left out.*doe2031"):
        found = discover()
    assert [t.title for t in found.values() if t.paper == "doe2030"][:2] == [
        "Figure good",
        "Figure also-good",
    ]
