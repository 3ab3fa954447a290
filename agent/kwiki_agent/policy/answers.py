"""What the tools of a model answer: pages, symbols, numbers, build logs and measurements as text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kwiki_ingest.hardware import gpu, load_hardware
from kwiki_ingest.load import find_page, read_source
from kwiki_ingest.quoting import as_data
from kwiki_ingest.search.retrieve import Hit, search
from kwiki_ingest.truth.symbols import Symbol, SymbolTable
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.evaluation import Evaluation, StaticReport, Status
from kwiki_kernels.job import Candidate
from kwiki_kernels.profile.diagnose import Diagnosis, diagnose
from kwiki_kernels.profile.metrics import metrics_of, roofline_metrics
from kwiki_kernels.task import Task

from kwiki_agent.compare import compare, timings

HITS = 5
MAX_PAGE_CHARS = 20_000
MAX_LOG_CHARS = 4_000
MAX_MEMBERS = 60
MAX_SYMBOLS = 5


def hits_text(hits: list[Hit]) -> str:
    """Hits of a search, best first."""
    if not hits:
        return "no page fits"
    return "\n\n".join(as_data(_hit(hit), f"wiki {hit.page_id}") for hit in hits)


def search_wiki(wiki: Wiki, query: str, arch: str) -> list[Hit]:
    """The best pages for a question, for this architecture.

    Raises:
        WikiError: the index cannot be read.
    """
    return search(wiki, query, arch=arch, k=HITS, store="chroma")


def page_text(wiki: Wiki, page_id: str) -> str:
    """A page whole, cut at `MAX_PAGE_CHARS`.

    Raises:
        WikiError: there is no such page; the message names the nearest.
    """
    text = read_source(wiki, find_page(wiki, page_id)).text
    cut = "" if len(text) <= MAX_PAGE_CHARS else f"\n[cut: the page has {len(text):,} characters]"
    return as_data(text[:MAX_PAGE_CHARS] + cut, f"wiki {page_id}")


def symbol_text(table: SymbolTable, name: str) -> str:
    """What the installed DSL has under a name.

    Raises:
        WikiError: it has nothing; the message names the nearest.
    """
    return "\n\n".join("\n".join(_symbol(symbol, table)) for symbol in table.find(name)[:MAX_SYMBOLS])


def hardware_text(wiki: Wiki, name: str | None) -> str:
    """Facts of one GPU with their sources, or the names of all.

    Raises:
        WikiError: there is no such GPU; the message names the nearest.
    """
    if name is None:
        return "\n".join(f"{gpu_name}: {facts.arch}" for gpu_name, facts in load_hardware(wiki).items())
    entry = gpu(wiki, name)
    lines = (f"{field}: {fact.value} {fact.unit} ({fact.source})" for field, fact in entry.facts.items())
    return as_data("\n".join((f"{name}: {entry.arch}", *lines)), f"hardware {name}")


def build_text(verdict: Evaluation) -> str:
    """Whether a kernel compiled, and what the binary shows."""
    if verdict.status is not Status.UNMEASURED:
        return f"{verdict.status}\n{as_data(verdict.log[-MAX_LOG_CHARS:], 'compiler')}"
    return "\n".join(("it compiles", *(_report(report) for report in verdict.static_reports)))


def code_text(candidate: Candidate, task: Task) -> str:
    """A candidate's text and knobs; the seed, which everybody knows, by name alone."""
    knobs = f"{candidate.id} has knobs {candidate.knobs}"
    if candidate.source in task.kernels.values():
        return f"{knobs} and the seed's code"
    return f"{knobs} and this code:\n" + as_data(candidate.source, f"kernel {candidate.id}")


def measurement_text(
    candidate_id: str,
    verdict: Evaluation,
    others: dict[str, Evaluation],
    profiled: Diagnosis | None = None,
) -> str:
    """Status, times, roofline and diagnosis of one candidate.

    Args:
        others: verdicts of the same job to compare with, by the names to show.
        profiled: what the profilers said; without it the verdict alone is diagnosed.
    """
    lines = [f"{candidate_id}: {verdict.status}"]
    if verdict.log:
        lines.append(as_data(verdict.log[:MAX_LOG_CHARS], "judge"))
    for name, other in others.items():
        if ratio := compare(other, verdict):
            lines.append(
                f"{ratio.value:.4f} times as fast as {name} (95 % interval {ratio.low:.4f}..{ratio.high:.4f})"
            )
    times = timings(verdict)
    for result in verdict.results:
        share = roofline_metrics(result, verdict.environment).get("roofline_share") if result.timing else None
        parts = [f"{result.uuid}: {result.status}"]
        parts += [f"{times[result.uuid].median_us:.2f} us"] if result.uuid in times else []
        parts += [f"{share:.0%} of roofline"] if share else []
        parts += [f"relative error {result.error.relative_l2:.2e}"] if result.error else []
        parts += [result.log[:200]] if result.log else []
        lines.append(", ".join(parts))
    lines += [_report(report) for report in verdict.static_reports]
    diagnosis = profiled or diagnose(metrics_of(verdict))
    lines.append(f"diagnosis: {diagnosis.bound}. {diagnosis.next_edit}")
    lines.append(
        "figures: " + json.dumps({name: round(value, 4) for name, value in diagnosis.metrics.items()})
    )
    return "\n".join(lines)


def _hit(hit: Hit) -> str:
    lines = [f"{hit.title} ({hit.type.value}, {hit.status.value}, {hit.confidence.value})"]
    lines += [f"only when {hit.valid_when}"] if hit.valid_when else []
    lines += [f"not when {hit.not_when}"] if hit.not_when else []
    lines += [f"its code failed when last tried: {hit.needs_recheck}"] if hit.needs_recheck else []
    return "\n".join([*lines, hit.claim or hit.text])


def _symbol(symbol: Symbol, table: SymbolTable) -> Iterator[str]:
    yield f"{symbol.name}{symbol.signature or ''}"
    yield f"{symbol.kind} of the installed DSL {table.dsl}"
    if symbol.summary:
        yield as_data(symbol.summary, symbol.name)
    if symbol.deprecated:
        yield f"deprecated: {symbol.deprecated}"
    members = table.members(symbol)
    if members:
        more = f" and {len(members) - MAX_MEMBERS} more" if len(members) > MAX_MEMBERS else ""
        names = (member.name.rpartition(".")[2] for member in members[:MAX_MEMBERS])
        yield f"members: {', '.join(names)}{more}"


def _report(report: StaticReport) -> str:
    mix = ", ".join(f"{name} {count}" for name, count in list(report.instruction_mix.items())[:10])
    axes = " ".join(f"{name}={value}" for name, value in report.static_axes.items())
    return (
        f"binary {axes}: {report.registers} registers, {report.spills} spills, {report.smem_bytes} bytes of "
        f"shared memory, {report.threads_per_cta} threads, {report.ctas_per_sm} CTAs per SM limited by "
        f"{report.occupancy_limit}; global loads by bits {report.global_load_bits}, stores "
        f"{report.global_store_bits}; {mix}"
    )
