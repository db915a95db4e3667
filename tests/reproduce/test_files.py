import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure

from odekit.errors import InputError
from odekit.reproduce import Picture, Target
from odekit.reproduce.files import atomic, plain, writable_folder, write_json, write_picture

TARGET = Target("doe2030/fig1", "A figure", "doe2030.fig1")


def drawn(numbers=None):
    figure = Figure()
    figure.subplots().plot([0, 1], [1, 0], label="a")
    return Picture(figure, numbers or {}, "Caption", (r"x^2",))


def test_strict_json_has_no_nan(tmp_path):
    content = {"x": np.array([1.0, np.nan, np.inf]), "n": np.int64(3), "b": np.bool_(True)}
    write_json(tmp_path / "a.json", content)
    text = (tmp_path / "a.json").read_text()

    def refuse(literal):
        raise AssertionError(f"not strict: {literal}")

    assert json.loads(text, parse_constant=refuse) == {"x": [1.0, None, None], "n": 3, "b": True}


@pytest.mark.parametrize("value", [1j, {1, 2}, object()])
def test_what_json_cannot_hold_is_named_with_its_place(value):
    with pytest.raises(InputError, match=r"numbers\.a\[1\]"):
        plain({"a": [0, value]})


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")
    with pytest.raises(RuntimeError), atomic(path) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        writable_folder(tmp_path / "file" / "out")


def test_picture_files(tmp_path):
    png, svg, numbers = write_picture(
        TARGET, drawn({"end": 0.5}), tmp_path, quick=True, seconds=1.0
    )
    assert png == tmp_path / "doe2030" / "fig1.png"
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ET.parse(svg).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    record = json.loads(numbers.read_text())
    assert record["end"] == 0.5
    assert record["meta"]["quick"] is True
    assert record["meta"]["equations"] == ["x^2"]
    assert {"python", "numpy", "matplotlib"} <= record["meta"]["versions"].keys()


def test_the_same_numbers_give_the_same_bytes(tmp_path):
    first, second = (
        write_picture(TARGET, drawn(), tmp_path / run, quick=False, seconds=1.0) for run in "ab"
    )
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_meta_is_reserved(tmp_path):
    with pytest.raises(InputError, match="meta"):
        write_picture(TARGET, drawn({"meta": 1}), tmp_path, quick=False, seconds=1.0)
