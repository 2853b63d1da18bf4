"""What happened, as llama.cpp's lines and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence as Seq

from spec_cli.stats import Calls, Guesses, Stats


def figure(value: float | None) -> str:
    """A number as a person reads it: three digits."""
    if value is None:
        return "-"
    places = next((n for most, n in ((0.9995, 3), (9.995, 2), (99.95, 1)) if value < most), 0)
    return f"{value:.{places}f}"


def cut_line(finish_reason: str, n: int, n_ctx: int) -> str | None:
    """Why an answer of `n` tokens stops where the model had not ended it."""
    if finish_reason == "length":
        return f"cut at {n} token{'s' * (n != 1)} (-n)"
    if finish_reason == "context":
        return f"the context is full ({n_ctx} tokens): the answer ends here (-c/--ctx-size)"
    return "interrupted" if finish_reason == "interrupted" else None


def acceptance_line(g: Guesses) -> str:
    """llama.cpp's documented line (docs/speculative.md)."""
    return f"draft acceptance rate = {g.acceptance_rate or 0:.5f} ({g.accepted:5d} accepted / {g.drafted:5d} generated)"


def turn_line(s: Stats, why: str) -> str:
    """llama-cli's line after an answer, with the acceptance behind it, or why nothing was drafted."""
    rates = (("Prompt", s.prompt_per_second), ("Generation", s.predicted_per_second))
    speed = " | ".join(f"{label}: {figure(rate)} t/s" for label, rate in rates)
    return f"[ {speed} ] {acceptance_line(s.total) if s.total.drafted else f'speculation: {why}'}"


def useless_line(g: Guesses) -> str | None:
    """What to say where many guesses were made and none was right."""
    if g.drafted <= 200 or g.accepted:
        return None
    return f"speculation: none of {g.drafted} guesses was right: this draft does not help this target"


def position_line(g: Guesses) -> str:
    """Acceptance by position of the draft (server-context.cpp, print_timings)."""
    return f"     acc per pos = ({', '.join(f'{rate:.3f}' for rate in g.accepted_per_position)})"


def timing_lines(s: Stats) -> list[str]:
    """llama-server's timing lines (server-context.cpp, print_timings)."""
    rows = (
        ("prompt eval time", s.prompt_s, s.prompt_n, s.prompt_n),
        ("       eval time", s.predicted_s, s.predicted_n, s.predicted_n - 1),
    )
    lines = []
    for label, seconds, count, over in rows:
        ms = seconds * 1e3
        each, rate = (ms / over, over / seconds) if over > 0 and seconds > 0 else (0.0, 0.0)
        lines.append(
            f"{label} = {ms:10.2f} ms / {count:5d} tokens ({each:8.2f} ms per token, {rate:8.2f} tokens per second)"
        )
    total = (s.prompt_s + s.predicted_s) * 1e3
    lines.append(f"      total time = {total:10.2f} ms / {s.prompt_n + s.predicted_n:5d} tokens")
    lines.append(f"   graphs reused = {s.graphs_reused:10d}")
    return lines


def statistics_lines(by_drafter: Mapping[str, Guesses], calls: Mapping[str, Calls]) -> list[str]:
    """One line for each drafter (common/speculative.cpp, common_speculative_print_stats)."""
    lines = []
    for name, c in calls.items():
        g = by_drafter.get(name, Guesses())
        line = (
            f"statistics {name:>16}: #calls(b,g,a) = {c.begin.n:4d} {c.draft.n:6d} {g.drafts:6d}, "
            f"#gen drafts = {g.drafts:6d}, #acc drafts = {g.drafts_accepted:5d}, "
            f"#gen tokens = {g.drafted:6d}, #acc tokens = {g.accepted:5d}"
        )
        if g.drafts:
            rates = ", ".join(f"{rate:.3f}" for rate in g.accepted_per_position)
            line += f", #mean acc len = {g.mean_length:.2f}, #acc rate/pos = ({rates})"
        ms = ", ".join(f"{timer.seconds * 1e3:.3f}" for timer in (c.begin, c.draft, c.accept))
        lines.append(f"{line}, dur(b,g,a) = {ms} ms")
    return lines


def counters(g: Guesses) -> dict[str, object]:
    """For JSON."""
    return {
        "drafted": g.drafted,
        "accepted": g.accepted,
        "acceptance_rate": None if g.acceptance_rate is None else round(g.acceptance_rate, 5),
        "accepted_per_position": [round(share, 5) for share in g.accepted_per_position],
    }


def by_drafter_json(guesses: Mapping[str, Guesses]) -> dict[str, object]:
    """For JSON: the counters of each drafter."""
    return {
        name: {"drafts": g.drafts, "drafts_accepted": g.drafts_accepted, **counters(g)} for name, g in guesses.items()
    }


def milliseconds(seconds: float) -> float:
    """For JSON: to a microsecond."""
    return round(seconds * 1e3, 3)


def as_json(s: Stats, types: Seq[str], n_max: int | None) -> dict[str, object]:
    """`timings` with llama-server's names and `speculative` with ours. Rates are None where undefined."""
    rate = {name: None if value is None else round(value, 3) for name, value in (
        ("prompt", s.prompt_per_second), ("predicted", s.predicted_per_second), ("round", s.tokens_per_round),
    )}  # fmt: skip

    return {
        "timings": {
            "cache_n": s.cache_n,
            "prompt_n": s.prompt_n,
            "prompt_ms": milliseconds(s.prompt_s),
            "prompt_per_second": rate["prompt"],
            "predicted_n": s.predicted_n,
            "predicted_ms": milliseconds(s.predicted_s),
            "predicted_per_second": rate["predicted"],
            "draft_n": s.total.drafted,
            "draft_n_accepted": s.total.accepted,
        },
        "speculative": {
            "types": list(types),
            "n_max": n_max,
            "rounds": s.rounds,
            **counters(s.total),
            "tokens_per_round": rate["round"],
            "by_drafter": by_drafter_json(s.by_drafter),
            "target_tokens": s.target_tokens,
            "draft_ms": milliseconds(s.draft_s),
            "target_ms": milliseconds(s.target_s),
            "other_ms": milliseconds(s.other_s),
        },
    }
