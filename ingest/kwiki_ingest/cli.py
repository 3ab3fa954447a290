"""The `wiki` command. Imports stay inside the commands: `wiki --help` must answer at once."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kwiki_ingest.arguments import positive
from kwiki_ingest.errors import WikiError
from kwiki_ingest.lessons.command import add_arguments as add_lesson_arguments
from kwiki_ingest.mcp.command import add_arguments as add_mcp_arguments
from kwiki_ingest.search.command import add_arguments as add_eval_arguments
from kwiki_ingest.truth.command import (
    add_api_arguments,
    add_coverage_arguments,
    add_lint_arguments,
    add_verify_arguments,
)
from kwiki_ingest.wiki import open_wiki

if TYPE_CHECKING:
    from kwiki_ingest.index.sync import SyncReport
    from kwiki_ingest.search.retrieve import Hit


def main(argv: list[str] | None = None) -> int:
    """Run one command: 0 done, 1 failed, 2 wrong usage. Results on stdout, everything else on stderr."""
    args = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # pages may hold more than the terminal can show
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except WikiError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped; pages and index are whole, and the same command can be run again.", file=sys.stderr)
        return 1
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # then the reader, such as `head`, has seen enough
            print(f"{error.filename or 'The output'} cannot be used: {error.strerror}.", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wiki", description="Search and keep the kernel wiki.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument("--wiki", metavar="DIR", help="the wiki (default: $KERNEL_WIKI, else ./wiki or above)")
    common = argparse.ArgumentParser(add_help=False, parents=[place])
    common.add_argument("--json", action="store_true", help="print the result as JSON")

    sync = commands.add_parser("sync", parents=[common], help="bring the index in step with the pages")
    sync.set_defaults(run=_sync)

    search = commands.add_parser("search", parents=[common], help="find pages by question or identifier")
    search.add_argument("query", nargs="+")
    search.add_argument("--arch", help="only pages for this architecture or any, e.g. sm_90a")
    search.add_argument("--type", action="append", dest="types", help="only pages of this type; repeatable")
    search.add_argument("--status", action="append", dest="statuses", help="also `retired`; repeatable")
    search.add_argument("--dsl", metavar="VERSION", help="only pages that hold for this DSL version")
    search.add_argument(
        "--leg", choices=("keyword", "dense"), action="append", dest="legs", help="only this leg"
    )
    search.add_argument(
        "--store", choices=("exact", "chroma"), default="exact", help="vectors of the dense leg"
    )
    search.add_argument("-k", type=positive, default=5, metavar="N", help="pages to show (default: 5)")
    search.set_defaults(run=_search)

    show = commands.add_parser("show", parents=[common], help="print a page")
    show.add_argument("id")
    show.set_defaults(run=_show)

    hardware = commands.add_parser(
        "hardware", parents=[common], help="look a hardware number up, with source"
    )
    hardware.add_argument("gpu", nargs="?", help="e.g. 'H200 SXM'; without it, the GPUs known")
    hardware.add_argument("field", nargs="?", help="e.g. hbm_bandwidth_tbps; without it, all")
    hardware.set_defaults(run=_hardware)

    lesson = commands.add_parser("add-lesson", parents=[place], help="add one lesson through the gate")
    add_lesson_arguments(lesson)
    lesson.set_defaults(run=_add_lesson)

    add_api_arguments(commands.add_parser("api", help="look a name up in the installed DSL"))
    add_verify_arguments(
        commands.add_parser("verify", parents=[common], help="try what the code on the pages claims")
    )
    add_lint_arguments(commands.add_parser("lint", parents=[common], help="check the rules that pages keep"))
    add_coverage_arguments(
        commands.add_parser("coverage", parents=[common], help="count what kernels use and no page shows")
    )
    add_eval_arguments(
        commands.add_parser("eval", parents=[common], help="score the search on questions with known answers")
    )

    add_mcp_arguments(commands.add_parser("mcp", parents=[place], help="serve the wiki to coding agents"))

    init = commands.add_parser("init", help="start a wiki of your own from the pages that come with this one")
    init.add_argument("dir", type=Path)
    init.set_defaults(run=_init)
    return parser


def _sync(args: argparse.Namespace) -> int:
    from kwiki_ingest.index.sync import sync

    report = sync(open_wiki(args.wiki), progress=_progress if sys.stderr.isatty() else None)
    for problem in report.problems:
        print(problem, file=sys.stderr)
    if args.json:
        _print_json(_sync_values(report))
    else:
        if report.rebuilt:
            print(f"Rebuilt, because {report.rebuilt}.")
        total = len(report.added) + len(report.updated) + report.unchanged
        print(
            f"{total} pages: {len(report.added)} added, {len(report.updated)} updated, "
            f"{len(report.removed)} removed, {report.unchanged} unchanged; {report.encoded} chunks encoded."
        )
    if report.problems:
        print(f"{len(report.problems)} files have problems and are not indexed.", file=sys.stderr)
    return 1 if report.problems else 0


def _search(args: argparse.Namespace) -> int:
    from kwiki_ingest.index.freshness import stale_reason
    from kwiki_ingest.search.filters import DEFAULT_STATUSES
    from kwiki_ingest.search.retrieve import search

    question = " ".join(args.query)
    if not question.strip():
        print("The question is empty; give words, an error message, or a name of the API.", file=sys.stderr)
        return 2
    wiki = open_wiki(args.wiki)
    hits = search(
        wiki,
        question,
        arch=args.arch,
        statuses=args.statuses or DEFAULT_STATUSES,
        types=args.types,
        dsl=args.dsl,
        k=args.k,
        legs=args.legs or ("keyword", "dense"),
        store=args.store,
    )
    stale = stale_reason(wiki)
    if stale:
        print(stale, file=sys.stderr)
    if args.json:
        _print_json([_hit_values(hit) for hit in hits])
    else:
        for hit in hits:
            print(_card(hit))
        if not hits:
            print("No page fits.", file=sys.stderr)
    return 0


def _show(args: argparse.Namespace) -> int:
    from kwiki_ingest.load import find_page, load_page, read_source

    wiki = open_wiki(args.wiki)
    path = find_page(wiki, args.id)
    if args.json:
        page = load_page(wiki, path)
        _print_json({"path": page.path, "front": page.front.model_dump(mode="json"), "body": page.body})
    else:
        print(_printable(read_source(wiki, path).text), end="")
    return 0


def _hardware(args: argparse.Namespace) -> int:
    from kwiki_ingest.hardware import gpu, load_hardware, lookup

    wiki = open_wiki(args.wiki)
    if args.gpu is None:
        table = load_hardware(wiki)
        if args.json:
            _print_json({name: entry.arch for name, entry in table.items()})
        else:
            print("\n".join(f"{name}  {entry.arch}" for name, entry in table.items()))
        return 0
    facts = {args.field: lookup(wiki, args.gpu, args.field)} if args.field else gpu(wiki, args.gpu).facts
    if args.json:
        _print_json({name: fact.model_dump(mode="json", exclude_none=True) for name, fact in facts.items()})
        return 0
    for name, fact in facts.items():
        print(f"{name}  {fact.value} {fact.unit}\n    {fact.source}")
        if fact.measured:
            m = fact.measured
            print(f"    measured: {m.value} {m.unit} on {m.machine}, {m.date}, by {m.command}")
    return 0


def _add_lesson(args: argparse.Namespace) -> int:
    from kwiki_ingest.lessons.command import run

    return run(args, open_wiki(args.wiki))


def _init(args: argparse.Namespace) -> int:
    from kwiki_ingest.starter import copy_starter

    copy_starter(args.dir)
    print(f"The wiki is in {args.dir}; index it with `wiki sync --wiki {args.dir}`.")
    return 0


def _card(hit: Hit) -> str:
    """A hit as a few lines of text."""
    where = f"{hit.path} > {hit.heading}" if hit.heading else hit.path
    legs = ", ".join(f"{leg} {rank}" for leg, rank in hit.ranks.items())
    head = f"{hit.page_id}: {hit.title}\n  {where}\n"
    facts = f"  {hit.type}, {', '.join(hit.arch)}, {hit.status}, {hit.confidence}; rank by {legs}\n"
    lines = [line for line in (hit.claim or hit.text).split("\n") if line.strip()]
    shown = "\n".join(f"    {line[:160]}" for line in lines[:8]) + ("\n    ..." if len(lines) > 8 else "")
    bounds = [("applies when", hit.valid_when), ("not when", hit.not_when)]
    limits = "".join(f"  {name}: {text}\n" for name, text in bounds if text)
    if hit.needs_recheck:
        limits = f"  needs recheck: {hit.needs_recheck}\n{limits}"
    return _printable(head + facts + limits + shown + "\n")


def _hit_values(hit: Hit) -> dict[str, object]:
    knobs = [knob.model_dump(mode="json", exclude_none=True) for knob in hit.knobs]
    return {**vars(hit), "ranks": dict(hit.ranks), "knobs": knobs}


def _sync_values(report: SyncReport) -> dict[str, object]:
    problems = [{"path": p.path, "line": p.line, "reason": p.reason} for p in report.problems]
    return {**vars(report), "problems": problems}


def _printable(text: str) -> str:
    """Pages come from many hands: no control character may reach the terminal."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def _print_json(value: object) -> None:
    import json

    print(json.dumps(value, ensure_ascii=False, indent=2))


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\rencoded {done} of {total} chunks", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
