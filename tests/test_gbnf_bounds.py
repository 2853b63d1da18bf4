"""Grammars that would end the process inside llama.cpp are refused before, with their place."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cases import generate, refused
from conftest import ask

from spec_cli.engine import Engine
from spec_cli.errors import UsageError
from spec_cli.llama.gbnf import MOST_NESTING, MOST_RULES, OutOfBounds, check_bounds
from spec_cli.llama.grammar import Grammar
from spec_cli.llama.loading import LoadParams
from spec_cli.llama.model import Model
from spec_cli.settings import Settings

CHAIN = "\n".join(f"r{i} ::= r{i + 1}" for i in range(100_000))
TOO_MUCH = [
    # ggml-org/llama.cpp#26600, mozilla-ai/llamafile#860: nesting and chains of rules end the process
    ("root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000, "line 1, column 510: groups are nested deeper than 500"),
    (f'root ::= r0\n{CHAIN}\nr100000 ::= "a"', "more than 10000 rules"),
    ("root ::= " + '"a"? ' * 20_000, "more than 10000 rules"),
    ('root ::= ("a" "b"){0,9000} ("c"?){0,9000}', "more than 10000 rules"),
    # a range that ends before it begins takes all memory
    ('root ::= "a"{5,2}', "line 1, column 13: the range {5,2} ends before it begins"),
    ('root ::= "b"\n  | [a-c]{ 3 , 1 }', "line 2, column 10: the range { 3 , 1 } ends before it begins"),
    ('root ::= "a"{1,0}', "ends before it begins"),
    ('root ::= "a"{99999999999999999999}', "is longer than 1000000"),
    (f'root ::= "{"a" * 5000}"{{1000}}', "repetitions write out more than 1000000 symbols"),
    ('root ::= "a\0b"', "a NUL character"),
]


@pytest.mark.parametrize(("grammar", "words"), TOO_MUCH)
def test_what_c_would_not_survive_is_refused_with_its_place(models: Path, grammar: str, words: str) -> None:
    with pytest.raises(OutOfBounds):
        check_bounds(grammar)
    with Model(models / "clock.gguf", "target", LoadParams(), dry=True) as model, pytest.raises(UsageError) as error:
        Grammar(model.vocab, grammar, "--grammar")
    assert str(error.value).startswith("--grammar: line ")
    assert words in str(error.value)


def test_a_file_and_a_row_are_bounded_too(models: Path, tmp_path: Path) -> None:
    """A row's grammar is its error record, and the rows behind it are answered."""
    from test_batch import batch, jsonl, records

    file = tmp_path / "deep.gbnf"
    file.write_text(TOO_MUCH[0][0])
    assert "--grammar-file: " in refused(generate(models / "clock.gguf", "-p", "abc", "--grammar-file", file), 2)
    rows = [{"prompt": "abc"}, {"prompt": "abc", "grammar": 'root ::= "a"{5,2}'}, {"prompt": "xyz"}]
    got = records(batch(models / "clock.gguf", "-np", 1, "-n", 3, stdin=jsonl(*rows)).stdout)
    assert [r.get("text") for r in got] == ["def", None, "abc"]
    assert "ends before it begins" in got[1]["error"]["reason"]


def test_usual_grammars_pass(models: Path) -> None:
    """What strings, classes and comments hold is no nesting and no range."""
    grammar = '# (((((( {5,2}\nroot ::= "({5,2}" [({5,2}] ("x" | "y"){2,3} end*\nend ::= "\\")" # {9,1}\n'
    check_bounds(grammar)
    check_bounds("root ::= " + "(" * MOST_NESTING + '"a"' + ")" * MOST_NESTING)
    check_bounds("\n".join(f'r{i} ::= "a"' for i in range(MOST_RULES)))
    with Engine(Settings(model=models / "plain.gguf", threads=1, ctx_size=256, temp=0.0)) as engine:
        assert ask(engine, "abc", grammar=grammar, predict=20).text.startswith("({5,2}")


def test_random_grammars_end_nothing(models: Path) -> None:
    """Six hundred random texts, and grammars at the bounds, in one process that must live to its end."""
    script = textwrap.dedent("""
        import random, sys
        from pathlib import Path
        from spec_cli.errors import UsageError
        from spec_cli.llama.gbnf import MOST_NESTING, MOST_RULES
        from spec_cli.llama.grammar import Grammar
        from spec_cli.llama.loading import LoadParams
        from spec_cli.llama.model import Model

        rng, taken = random.Random(7), 0
        parts = ['root', ' ::= ', '"a"', '[a-z]', '[^', ']', '(', ')', '|', '*', '+', '?', '{', '}', '{2,3}',
                 '{0,}', '{7}', '\\n', ' ', '#', '"', '\\\\', '\\\\x', 'é', '<', '>', '<[1]>', '.', 'b', '::=', '-',
                 ',', '\\u1234', '!']
        texts = ['root ::= ' + ''.join(rng.choice(parts) for _ in range(rng.randint(1, 30))) for _ in range(600)]
        texts += ['root ::= ' + '(' * MOST_NESTING + '"a"' + ')' * MOST_NESTING,
                  'root ::= ("a"{0,20}){0,20}',
                  'root ::= r0\\n' + '\\n'.join(f'r{i} ::= r{i + 1}' for i in range(9990)) + '\\nr9990 ::= "a"']
        with Model(Path(sys.argv[1]), "target", LoadParams(), dry=True) as model:
            for text in texts:
                try:
                    grammar = Grammar(model.vocab, text, "--grammar")
                except UsageError as error:
                    assert str(error).startswith("--grammar: ") and "\\n" not in str(error), error
                    continue
                taken += 1
                for token in range(model.vocab.size):
                    if grammar.allows(token):
                        grammar.accept(token)
                        break
                grammar.close()
        print(taken)
    """)
    command = [sys.executable, "-c", script, models / "clock.gguf"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert int(done.stdout) > 20
