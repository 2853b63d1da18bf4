"""Downloads, against a small hub on this machine; the network is touched only when asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import cli
from local_hub import Hub

from spec_cli.config import resolve
from spec_cli.errors import UsageError
from spec_cli.hub.choice import choose_draft, choose_file
from spec_cli.shards import shards_of


def generate(world: dict[str, str], *args: object) -> Any:
    return cli("generate", *args, "-p", "abc", "-n", 3, "-t", 1, "--temp", 0, env=world)


def test_a_model_is_downloaded_once_and_by_its_quantisation(hub: Hub, world: dict[str, str]) -> None:
    """Without a tag Q4_K_M; a second run downloads nothing; offline the network is not touched at all."""
    assert generate(world, "-hf", "me/clock-GGUF", "-hft", "secret").stdout == b"def\n"
    assert hub.token == "Bearer secret"
    assert any(method == "GET" and path.endswith("clock-Q4_K_M.gguf") for method, path, _ in hub.asked)
    assert generate(world, "-hf", "me/clock-GGUF:q8_0").stdout == b"jjj\n"
    hub.asked.clear()
    done = generate(world, "-hf", "me/clock-GGUF")
    assert (done.returncode, done.stdout) == (0, b"def\n")
    assert not any(method == "GET" and path.endswith(".gguf") for method, path, _ in hub.asked)
    hub.asked.clear()
    assert generate(world, "-hf", "me/clock-GGUF", "--offline").stdout == b"def\n"
    assert (
        generate({**world, "LLAMA_ARG_OFFLINE": "1"}, "-hf", "me/clock-GGUF", "-hff", "clock-Q8_0.gguf").stdout
        == b"jjj\n"
    )
    assert hub.asked == []


def test_a_draft_comes_from_its_own_repository(hub: Hub, world: dict[str, str]) -> None:
    done = generate(world, "-hf", "me/clock-GGUF", "-hfd", "me/draft")
    assert done.stdout == b"def\n"
    assert b"speculation: draft-simple (from -hfd/--hf-repo-draft), n_max 3" in done.stderr
    assert b"-hf me/clock-GGUF: clock-Q4_K_M.gguf" in done.stderr
    done = generate(world, "-hf", "me/clock-GGUF", "-hfd", "me/clock-GGUF", "-md", "clock-Q4_K_M.gguf")
    assert done.stdout == b"def\n"
    assert b"draft acceptance rate = 1.0" in done.stderr


def test_a_quiet_run_downloads_and_says_nothing(
    hub: Hub, world: dict[str, str], tmp_path: Path, models: Path
) -> None:  # fmt: skip
    """A submodule of a package that loads lazily need not be there: huggingface/huggingface_hub#1418."""
    toml = tmp_path / "models.toml"
    toml.write_text("[defaults]\nquiet = true\n")
    for command, *source in (
        ("generate", "-hf", "me/clock-GGUF", "-q", "-p", "abc"),
        ("generate", "-hf", "me/clock-GGUF", "-q", "-p", "abc", "--offline"),
        ("generate", "-m", models / "clock.gguf", "-hfd", "me/draft", "-q", "-p", "abc"),
        ("chat", "-hf", "me/clock-GGUF", "-q", "--chat-template", "{{ messages[-1].content }}"),
        ("batch", "-hf", "me/clock-GGUF:Q8_0", "--config", toml),
    ):
        how = (*source, "-n", 3, "-t", 1, "--temp", 0)
        done = cli(command, *how, env={**world, "HF_HUB_DISABLE_PROGRESS_BARS": "0"}, stdin=b"abc\n")
        assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
        assert (b"jjj" if command == "batch" else b"def") in done.stdout
    assert any(path.endswith("d-Q8_0.gguf") for _, path, _ in hub.asked)


def test_an_interrupted_download_goes_on_where_it_stopped(hub: Hub, world: dict[str, str]) -> None:
    hub.cut = 25 << 20  # the client writes 10 MiB at a time
    first = generate(world, "-hf", "me/large")
    assert b"Error while downloading" not in first.stderr
    assert b"-hf me/large: a request failed: trying again\n" in first.stderr
    done = generate(world, "-hf", "me/large")
    assert done.stdout == b"def\n"
    assert any(re.fullmatch("bytes=[1-9][0-9]+-", part) for method, _, part in hub.asked if method == "GET")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("-hf", "me/clock-GGUF:Q5_K_S"), 3, "has no model file Q5_K_S (GGUF files: clock-Q4_K_M.gguf"),
        (("-hf", "me/empty"), 3, "me/empty has no model file (GGUF files: none)"),
        (("-hf", "me/nothing"), 3, "-hf/--hf-repo: me/nothing: "),
        (("-hf", "clock"), 2, "'clock' is not USER/REPO"),
        (("-hf", "me/clock-GGUF", "-hff", "x.gguf"), 3, "me/clock-GGUF has no file x.gguf (GGUF files: clock-Q4_K_M"),
        (("-hff", "clock-Q8_0.gguf"), 2, "-hff/--hf-file: needs -hf USER/REPO"),
        (("-hf", "me/clock-GGUF", "-m", "x.gguf"), 2, "-m/--model and -hf/--hf-repo: give one of them"),
    ],
)
def test_what_cannot_be_had_is_one_line(world: dict[str, str], args: tuple[str, ...], code: int, words: str) -> None:
    done = generate(world, *args)
    assert (done.returncode, done.stdout) == (code, b"")
    assert words in done.stderr.decode().splitlines()[-1]


def test_nothing_is_asked_of_the_network_by_other_runs(hub: Hub, world: dict[str, str], models: Path) -> None:
    assert generate(world, "-m", models / "clock.gguf").stdout == b"def\n"
    assert hub.asked == []


@pytest.mark.parametrize(
    ("names", "tag", "right"),
    [
        (["a-Q8_0.gguf", "a-Q4_K_M.gguf"], "", "a-Q4_K_M.gguf"),
        (["a-Q8_0.gguf", "a-Q2_K.gguf"], "", "a-Q8_0.gguf"),
        (["b.gguf", "a.gguf", "README.md"], "", "a.gguf"),
        (["a-Q4_K_M.gguf", "a-IQ4_XS.gguf"], "iq4_xs", "a-IQ4_XS.gguf"),
        (["a-Q4_K_M.gguf", "a-Q4_K_S.gguf"], "Q4_K", None),
        (
            ["mtp-a-Q4_K_M.gguf", "a-Q4_K_M-00002-of-00002.gguf", "a-Q4_K_M-00001-of-00002.gguf"],
            "",
            "a-Q4_K_M-00001-of-00002.gguf",
        ),
        (["imatrix.gguf", "mmproj-F16.gguf"], "", None),
        (["Ornith-9B-MTP-IQ2_M.gguf", "Ornith-9B-MTP-Q6_K.gguf", "mmproj.gguf"], "Q6_K", "Ornith-9B-MTP-Q6_K.gguf"),
        (["imatrix-quants/a-Q4_K_M.gguf", "b.gguf"], "", "imatrix-quants/a-Q4_K_M.gguf"),
        (["mtp-heads/a-Q8_0.gguf"], "", "mtp-heads/a-Q8_0.gguf"),
        (["a-Eagle3-Q4_K_M.gguf", "A-DFlash-x-Q8_0.gguf"], "Q8_0", "A-DFlash-x-Q8_0.gguf"),
        (["a-IMatrix-Q4_K_M.gguf"], "", "a-IMatrix-Q4_K_M.gguf"),
        (["sub/mtp-a-Q4_K_M.gguf", "a-eagle3-Q4_K_M.gguf"], "", None),
        (["a-Q4_K_M.GGUF"], "", None),
    ],
)
def test_the_file_is_chosen_as_llama_cpp_does(names: list[str], tag: str, right: str | None) -> None:
    """A word in the base name makes a file no model, written as llama.cpp writes it: ggml-org/llama.cpp#27201."""
    assert choose_file(names, tag) == right


@pytest.mark.parametrize(
    ("names", "tag", "right"),
    [
        (["a-Q4_K_M.gguf", "sub/eagle3-a-F16.gguf", "mtp-a-Q8_0.gguf"], "", "mtp-a-Q8_0.gguf"),
        (["a-Q4_K_M.gguf", "sub/eagle3-a-F16.gguf", "mmproj-a.gguf"], "", "sub/eagle3-a-F16.gguf"),
        (["mtp-a-Q4_0.gguf", "mtp-a-Q8_0.gguf"], "q8_0", "mtp-a-Q8_0.gguf"),
        (["mtp-a-Q4_0.gguf", "a-Q8_0.gguf"], "Q8_0", "mtp-a-Q4_0.gguf"),
        (["a-Q4_K_M.gguf", "mtp-a-BF16.gguf", "mtp-a-Q8_0.gguf"], "Q4_K_M", "mtp-a-Q8_0.gguf"),
        (["a-Q4_K_M.gguf", "mtp-a-BF16.gguf", "mtp-a-Q4_0.gguf"], "", "mtp-a-Q4_0.gguf"),
        (["mtp-a-Q4_0.gguf", "mtp-a-Q4_K_M.gguf"], "q4_k_m", "mtp-a-Q4_K_M.gguf"),
        (["a-F16.gguf", "mtp-a-Q8_0.gguf", "mtp-a-F16.gguf"], "", "mtp-a-F16.gguf"),
        (["q/a-Q4_K_M.gguf", "mtp-a-Q4_K_M.gguf", "q/mtp-a-Q8_0.gguf"], "Q4_K_M", "q/mtp-a-Q8_0.gguf"),
        (["a-Q4_K_M.gguf", "mtp-a-Q8_0.gguf", "sub/mtp-a-Q4_K_M.gguf"], "Q4_K_M", "mtp-a-Q8_0.gguf"),
        (["mtp-a-Q8_0-00002-of-00002.gguf", "mtp-a-Q8_0-00001-of-00002.gguf"], "", "mtp-a-Q8_0-00001-of-00002.gguf"),
        (["a-MTP-Q8_0.gguf", "A-Eagle3-Q4_K_M.gguf", "mtp-x/a-Q2_K.gguf"], "Q4_K_M", "A-Eagle3-Q4_K_M.gguf"),
        (["dflash-a-Q8_0.gguf", "a-Q8_0.gguf"], "", "a-Q8_0.gguf"),
    ],
)
def test_a_draft_repository_gives_its_head_first(names: list[str], tag: str, right: str) -> None:
    assert choose_draft(names, tag) == right


@pytest.mark.parametrize(
    ("types", "right"),
    [
        (("draft-simple",), "a-Q8_0.gguf"),
        (("draft-eagle3",), "eagle3-a-Q8_0.gguf"),
        (("ngram-simple", "draft-mtp"), "mtp-a-Q8_0.gguf"),
    ],
)
def test_a_type_that_is_asked_for_gets_its_own_head(types: tuple[str, ...], right: str) -> None:
    """common/arg.cpp looks for the heads of the types that were named, for all where none was."""
    assert choose_draft(["a-Q8_0.gguf", "eagle3-a-Q8_0.gguf", "mtp-a-Q8_0.gguf"], "Q8_0", types) == right


def test_all_shards_are_taken() -> None:
    assert shards_of("x/a-00001-of-00003.gguf") == [f"x/a-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert shards_of("a.gguf") == ["a.gguf"]
    assert shards_of("a-00000-of-00000.gguf") == ["a-00000-of-00000.gguf"]


def test_the_closer_one_of_a_file_and_a_repository_counts(tmp_path: Path) -> None:
    env = {"SPEC_CLI_CONFIG": "", "LLAMA_ARG_HF_REPO": "a/b"}
    assert resolve({}, env).hf_repo == "a/b"
    given = resolve({"model": str(tmp_path / "x.gguf")}, env)
    assert (given.hf_repo, given.model) == (None, tmp_path / "x.gguf")
    with pytest.raises(UsageError, match="give one of them"):
        resolve({}, {**env, "LLAMA_ARG_MODEL": "x.gguf"})
