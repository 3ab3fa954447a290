"""What models cost: tokens and money per message, prices by table, sums for the budget."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from kwiki_kernels.evaluation import Record
from pydantic import TypeAdapter, ValidationError

from kwiki_agent.contract import AgentError, Model, Price
from kwiki_agent.runs import RunFolder

USAGE = "usage.jsonl"
"""In the run folder: one line a message."""

Role = Literal["author", "reviewer"]


DEFAULT_MODEL = "claude-opus-5-5"


class Models(NamedTuple):
    """Who writes kernels, and who may veto them."""

    author: Model
    reviewer: Model | None


class Usage(Record):
    """One message of a model. Tokens are disjoint: read from the cache, written to it, or neither."""

    round: int
    role: Role
    model: str
    input_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    output_tokens: int
    cost_usd: float | None
    """None: the contract knows no price."""
    model_s: float
    """Seconds from the request to the last byte, retries included."""
    stop_reason: str
    """As the server said, or `cut` for a stream that broke off."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.cache_write_tokens + self.cache_read_tokens + self.output_tokens


class Bill(Record):
    """The messages of a run together."""

    messages: int = 0
    tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None where the price of any message is unknown."""
    model_s: float = 0.0


def cost_usd(
    price: Price | None, *, fresh: int, cache_write: int, cache_read: int, output: int
) -> float | None:
    """US dollars for one message; None without a price."""
    if price is None:
        return None
    parts = (
        (fresh, price.input), (cache_write, price.cache_write), (cache_read, price.cache_read),
        (output, price.output),
    )  # fmt: skip
    return sum(tokens * per_million for tokens, per_million in parts) / 1e6


def bill(run: RunFolder) -> Bill:
    """What this run's models took so far."""
    lines = [Usage.model_validate(line) for line in run.lines(USAGE)]
    costs = [line.cost_usd for line in lines]
    known = [cost for cost in costs if cost is not None]
    return Bill(
        messages=len(lines),
        tokens=sum(line.tokens for line in lines),
        cached_tokens=sum(line.cache_read_tokens for line in lines),
        output_tokens=sum(line.output_tokens for line in lines),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        model_s=sum(line.model_s for line in lines),
    )


def load_prices(path: Path | None = None) -> dict[str, Price]:
    """Prices by model name, from a file or from the table that comes with the package.

    Raises:
        AgentError: the file is missing or malformed.
    """
    source = path or Path(str(files("kwiki_agent.policy"))) / "prices.toml"
    try:
        return TypeAdapter(dict[str, Price]).validate_python(
            tomllib.loads(source.read_text(encoding="utf-8"))
        )
    except OSError as error:
        raise AgentError(f"price file '{source}' cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AgentError(f"price file '{source}' is no TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise AgentError(f"price file '{source}': {where}: {first['msg']}") from None


def choose_models(model: str | None, effort: str | None, reviewer: str | None, prices: Path | None) -> Models:
    """The models by name, else by the environment, with the prices that are known.

    Raises:
        AgentError: the price file is malformed, or there is no such effort.
    """
    table = load_prices(prices)
    name = model or os.environ.get("KERNEL_AGENT_MODEL") or DEFAULT_MODEL
    how = effort or os.environ.get("KERNEL_AGENT_EFFORT")
    review = reviewer or os.environ.get("KERNEL_AGENT_REVIEWER") or name
    return Models(_model(name, how, table), None if review == "none" else _model(review, how, table))


def _model(name: str, effort: str | None, prices: dict[str, Price]) -> Model:
    try:
        return Model.model_validate({"name": name, "effort": effort, "price": prices.get(name)})
    except ValidationError:
        raise AgentError(f"effort '{effort}' is none of low, medium, high, xhigh, max") from None


def check_key() -> None:
    """Refuse to start or resume without a key.

    Raises:
        AgentError: the environment holds none.
    """
    if not (os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN")):
        raise AgentError(
            "the claude policy needs ANTHROPIC_API_KEY in the environment: "
            "set it, or take `--policy tuner`, which needs no model"
        )


def check_prices(limits: Mapping[str, object], models: Models | None) -> None:
    """Refuse a budget of money that could not be held.

    Raises:
        AgentError: the price of a model is unknown.
    """
    unknown = [model.name for model in models or () if model is not None and model.price is None]
    if limits.get("max_cost_usd") is not None and unknown:
        raise AgentError(
            f"no price is known for model '{unknown[0]}', so --max-cost cannot be held: "
            "name a file that has it with --prices, or set --max-tokens instead"
        )
