"""Numbers and tables as a person reads them: three digits, no figure twice, room for them at 60 columns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tiny
from cases import said
from conftest import cli
from terminal import Terminal

from spec_cli.report import figure
from spec_cli.stats import Calls, Passes

NGRAM = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", 2, "--spec-ngram-simple-size-m", 4)
CHAT = ("-t", 1, "--temp", 0, "-n", 60, "--chat-template", "{{ messages[-1].content }}")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"), (0.0, "0.000"), (0.83935, "0.839"), (0.99951, "1.00"), (1.0, "1.00"), (9.994, "9.99"),
        (9.996, "10.0"), (57.04, "57.0"), (99.96, "100"), (129.4, "129"), (3725.6, "3726"),
    ],
)  # fmt: skip
def test_a_figure_has_three_digits(value: float | None, shown: str) -> None:
    assert figure(value) == shown


def test_no_figure_of_stats_is_there_twice(models: Path) -> None:
    done = cli("chat", "-m", models / "clock.gguf", *CHAT, *NGRAM, stdin=b"abcdefgh\n/stats\n")
    table = [line for line in said(done) if re.search(r" {2}\S+ +\S+$", line) and not line.startswith("[")]
    rows = {" ".join(line.split()[:-2]): line.split()[-2:] for line in table}
    assert len([name for name in rows if "acceptance" in name]) == 1
    assert rows["acceptance"][0] == "1.00"
    assert rows["drafted"] == rows["accepted"]
    assert float(rows["tokens a round"][0]) > 2
    assert all(len(line) < 60 for line in table)
    assert not [line for line in table if re.search(r"\d\.\d{4}", line)]


def test_the_line_after_a_turn_has_three_digits_and_llama_cpps_own(models: Path) -> None:
    done = cli("chat", "-m", models / "clock.gguf", *CHAT, *NGRAM, stdin=b"abcdefgh\n")
    (line,) = [line for line in said(done) if line.startswith("[ Prompt")]
    assert re.fullmatch(
        r"\[ Prompt: (\d\.\d\d|\d\d\.\d|\d{3,}) t/s \| Generation: (\d\.\d\d|\d\d\.\d|\d{3,}) t/s \] "
        r"draft acceptance rate = 1\.00000 \( *(\d+) accepted / *\3 generated\)",
        line,
    )


@pytest.mark.parametrize("columns", [60, 80])
def test_batch_fits_the_terminal(models: Path, tmp_path: Path, columns: int) -> None:
    """The bar keeps its length and the time that is left; the table keeps its rows."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": tiny.alphabet(8 + i % 9)}) + "\n" for i in range(40)))
    args = (rows, "-c", 512, "-n", 60, "--temp", 0, *NGRAM, "-o", tmp_path / "out")
    with Terminal(models / "clock.gguf", *args, home=tmp_path, columns=columns, command="batch") as t:
        assert t.ended() == 0
        drawn = [re.sub(r"\x1b\[[0-9;?]*\w", "", text) for text in re.split(r"\x1b\[2K|[\r\n]", t.raw.decode())]
        shown = [text for text in drawn if re.match(r"[━╸╺]", text) and "rows" in text]
        assert any(text.endswith("left") for text in shown)
        assert all(len(text) <= columns for text in shown)
        assert all(len(text.split(" ")[0]) >= 10 for text in shown)
        assert all(len(line) <= columns for line in t.lines)
        assert ("drafter" in t.text) == (columns == 80)
        assert re.search(r"acceptance +1\.00" if columns == 60 else r"ngram-simple +\d+ +(\d+) +\1 +1\.00", t.text)
        assert "mean len" not in t.text


def test_a_table_of_batch_with_two_drafters_fits_sixty_columns() -> None:
    from spec_cli.batch.totals import Totals
    from spec_cli.render import summary
    from spec_cli.stats import Stats

    totals = Totals(seconds=12.5, answered=1000)
    stats = Stats(predicted_n=120_000)
    for name in ("ngram-simple", "draft-eagle3"):
        stats.by_drafter.setdefault(name, type(stats.total)()).add(300_000, 250_000)
        stats.total.add(300_000, 250_000)
    totals.add("stop", stats)
    calls = {name: Calls() for name in stats.by_drafter}
    for width in (59, 79, 120):
        lines = summary(totals, Passes(), calls, width)
        assert all(len(line) <= width for line in lines[3:])
        assert len(lines) == 3 + (7 if width < 70 else 3)
