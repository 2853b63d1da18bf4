"""A model that gives no finite logits has failed; it has not ended its answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
from cases import NGRAM_FLAGS, generate, refused, said
from conftest import ask, cli
from gguf_mutants import File

from spec_cli.drafters.greedy import top_probability
from spec_cli.engine import Engine
from spec_cli.errors import BackendError
from spec_cli.settings import Settings

WHY = "token 4 (position 5): the model gives no finite logits: --check-tensors looks for damaged weights"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clock, but what it knows of `f` is NaN: ggml-org/llama.cpp#23606, #26651; turboderp/exllama#222."""
    path = tiny.clock(tmp_path_factory.mktemp("damaged") / "damaged.gguf")
    file = File.read(path.read_bytes())
    table = next(t for t in file.tensors if t.name == b"token_embd.weight")
    data, row = bytearray(file.data), table.dims[0] * 4
    at = table.offset + row * (tiny.A + 5)
    data[at : at + row] = np.full(table.dims[0], np.nan, np.float32).tobytes()
    file.data = bytes(data)
    path.write_bytes(file.bytes()[0])
    return path


@pytest.mark.parametrize("flags", [(), NGRAM_FLAGS, ("--temp", "1", "--seed", "3"), ("--grammar", "root ::= [a-z]*")])
def test_an_answer_without_logits_is_an_error_with_its_position(damaged: Path, flags: tuple[str, ...]) -> None:
    """What was said before stays."""
    done = generate(damaged, "--raw", "-q", "-p", "abc", "-n", 8, *flags)
    assert done.returncode == 5
    assert done.stdout.startswith(b"def" if "1" not in flags else b"")
    assert said(done)[-1].startswith("error: token ")
    if "1" not in flags:
        assert said(done) == [f"error: {WHY}"]
    assert generate(damaged, "--raw", "-q", "--json", "-p", "abc", "-n", 8, *flags).stdout == b""


def test_one_row_without_logits_leaves_the_others_alone(damaged: Path) -> None:
    rows = b'{"prompt": "abc"}\n{"prompt": "klm"}\n{"prompt": "f"}\n{"prompt": "pqr"}\n'
    done = cli("batch", "-m", damaged, "-t", 1, "--temp", 0, "-n", 8, "-np", 4, "--raw", "-q", stdin=rows)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert records[0]["error"] == {"line": 1, "reason": WHY}
    assert records[1]["text"] == "nopqrstu"
    assert records[2]["error"]["reason"].startswith("token 1 (position 0): the model gives no finite logits")
    assert records[3]["text"] == "stuvwxyz"


def test_an_engine_goes_on_after_an_answer_without_logits(damaged: Path) -> None:
    with Engine(Settings(model=damaged, threads=1, ctx_size=256, temp=0.0, raw=True)) as engine:
        for _ in range(2):
            with pytest.raises(BackendError, match=r"^token 4 .*no finite logits"):
                ask(engine, "abc", predict=8)
            assert ask(engine, "klm", predict=3).text == "nop"


def test_what_a_person_forbids_is_no_fault_of_the_model(models: Path) -> None:
    """A grammar that allows nothing more ends the answer; biases may forbid every token."""
    clock = models / "clock.gguf"
    done = generate(clock, "--raw", "-q", "-p", "abc", "-n", 8, "--grammar", 'root ::= "de"')
    assert (done.returncode, done.stdout, done.stderr) == (0, b"de\n", b"")
    forbidden = tuple(f"{i}-inf" for i in range(tiny.SIZE))
    with Engine(Settings(model=clock, threads=1, ctx_size=256, temp=0.0, logit_bias=forbidden)) as engine:
        assert ask(engine, "abc", predict=2).finish_reason in ("stop", "length")


def test_a_draft_without_logits_guesses_only_nonsense(models: Path, damaged: Path) -> None:
    draft = ("-md", damaged, "--spec-draft-p-min", 0.5)
    done = generate(models / "clock.gguf", "--raw", "-q", "-p", "abc", "-n", 9, *draft)
    assert (done.returncode, done.stdout) == (0, b"defghijkl\n")
    for bad in (np.nan, np.inf, -np.inf):
        assert top_probability(np.full(8, bad, np.float32))[1] == 0.0


@pytest.mark.parametrize("scale", ["nan", "inf", "-inf"])
def test_a_lora_has_a_finite_scale(models: Path, scale: str) -> None:
    line = refused(generate(models / "clock.gguf", "-p", "abc", "--lora-scaled", f"f.gguf:{scale}"), 2)
    assert line == f"error: --lora-scaled: 'f.gguf:{scale}' is not FILE:SCALE"
