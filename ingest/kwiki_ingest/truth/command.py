"""`wiki api`, `wiki verify`, `wiki lint` and `wiki coverage`: their options and what they print."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kwiki_ingest.arguments import positive
from kwiki_ingest.wiki import open_wiki

if TYPE_CHECKING:
    from kwiki_ingest.truth.snippets import Report, Result
    from kwiki_ingest.truth.symbols import Symbol, SymbolTable

SHOWN_MEMBERS = 60
SHOWN_ALIASES = 3


def add_api_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wiki api`."""
    parser.description = (
        "Look a name up in the installed nvidia-cutlass-dsl: signature, first line of its docstring, file "
        "and line, and for a module or class what it holds."
    )
    parser.add_argument("name", help="e.g. cute.make_tiled_copy_tv, PipelineTmaUmma, cutlass.pipeline")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_api)


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wiki verify`."""
    parser.description = (
        "Try what the code fences claim: compiles=ARCH,..., runs, error=TEXT. Only what changed is tried "
        "again. The code runs with your rights. Lessons are left out unless you name them."
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these pages")
    parser.add_argument("--python", type=Path, metavar="FILE", help="an interpreter with another DSL version")
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="snippets side by side (default: the cores)"
    )
    parser.add_argument(
        "--limit", type=positive, default=60, metavar="SECONDS", help="for each (default: 60)"
    )
    parser.add_argument("--again", action="store_true", help="try everything, also what is known")
    parser.set_defaults(run=_verify)


def add_lint_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wiki lint`."""
    parser.description = "Check every rule that can be checked without running code; 1 if an error is found."
    parser.add_argument(
        "--clones",
        type=Path,
        metavar="DIR",
        help="git repositories as DIR/OWNER/NAME or DIR/NAME, bare or not, to look the sources up in",
    )
    parser.set_defaults(run=_lint)


def add_coverage_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wiki coverage`."""
    parser.description = (
        "Count which names of the DSL the kernels under some folders use, and list those among the most used "
        "that no page shows in working code."
    )
    parser.add_argument("kernels", nargs="+", type=Path, metavar="DIR", help="folders of Python kernels")
    parser.add_argument(
        "--top", type=positive, default=100, metavar="N", help="names to look at (default: 100)"
    )
    parser.set_defaults(run=_coverage)


def _api(args: argparse.Namespace) -> int:
    from kwiki_ingest.truth.symbols import load_symbols

    table = load_symbols()
    found = table.find(args.name)
    if args.json:
        _print_json([_symbol_values(symbol, table) for symbol in found])
    else:
        print("\n\n".join(_symbol_card(symbol, table, len(found) == 1) for symbol in found))
    return 0


def _verify(args: argparse.Namespace) -> int:
    from kwiki_ingest.truth.snippets import verify

    report = verify(
        open_wiki(args.wiki),
        args.ids,
        python=args.python,
        workers=args.workers,
        limit_s=args.limit,
        again=args.again,
        progress=_progress if sys.stderr.isatty() else None,
    )
    if args.json:
        _print_json(_report_values(report))
    else:
        for problem in report.problems:
            _print(str(problem))
        for result in report.failed:
            _print(f"{result.snippet.path}:{result.line}: {_arch(result)}{result.outcome.message}")
        for path, reason in report.skipped.items():
            print(f"{path} is left out: {reason}.", file=sys.stderr)
        pages = len({result.snippet.path for result in report.results})
        failed = len(report.failed)
        print(
            f"DSL {report.dsl}: {len(report.results)} claims on {pages} pages, {failed} fail; "
            f"{report.tried} tried now, {report.fragments} fragments left alone."
        )
    return 1 if report.failed or report.problems else 0


def _lint(args: argparse.Namespace) -> int:
    from kwiki_ingest.truth.lint import lint

    findings = lint(open_wiki(args.wiki), clones=args.clones)
    errors = sum(finding.level == "error" for finding in findings)
    if args.json:
        _print_json([vars(finding) for finding in findings])
    else:
        for found in findings:
            _print(f"{found.path}:{found.line}: {found.level}: {found.message} [{found.rule}]")
        print(f"{errors} errors, {len(findings) - errors} warnings.")
    return 1 if errors else 0


def _coverage(args: argparse.Namespace) -> int:
    from kwiki_ingest.truth.coverage import coverage

    names = coverage(open_wiki(args.wiki), args.kernels, args.top)
    if args.json:
        _print_json([vars(used) for used in names])
        return 0
    missing = [used for used in names if not used.pages]
    for used in missing:
        print(f"{used.name}  {used.uses} uses in {used.files} files")
    print(f"{len(names) - len(missing)} of the {len(names)} most used names stand in working code on a page.")
    return 0


def _symbol_card(symbol: Symbol, table: SymbolTable, whole: bool) -> str:
    from kwiki_ingest.truth.symbols import seen_since

    lines = [f"{symbol.name}{symbol.signature or ''}", f"  {symbol.kind} of DSL {table.dsl}"]
    since = seen_since(symbol.name, table)
    if since:
        lines[1] += f", not before {since}"
    if symbol.summary:
        lines.append(f"  {symbol.summary}")
    if symbol.deprecated:
        lines.append(f"  deprecated: {symbol.deprecated}")
    if symbol.file:
        lines.append(f"  {symbol.file}:{symbol.line}")
    if symbol.aliases:
        more = ", ..." if len(symbol.aliases) > SHOWN_ALIASES else ""
        lines.append(f"  also: {', '.join(symbol.aliases[:SHOWN_ALIASES])}{more}")
    members = table.members(symbol) if whole else []
    lines += [
        f"    {member.name.rpartition('.')[2]}{member.signature or ''}" for member in members[:SHOWN_MEMBERS]
    ]
    if len(members) > SHOWN_MEMBERS:
        lines.append(f"    and {len(members) - SHOWN_MEMBERS} more; all with --json")
    return "\n".join(lines)


def _symbol_values(symbol: Symbol, table: SymbolTable) -> dict[str, object]:
    from kwiki_ingest.truth.symbols import seen_since

    members = [member.name for member in table.members(symbol)]
    return vars(symbol) | {"dsl": table.dsl, "since": seen_since(symbol.name, table), "members": members}


def _report_values(report: Report) -> dict[str, object]:
    pages: dict[str, list[dict[str, object]]] = {}
    for result in report.results:
        outcome = result.outcome
        pages.setdefault(result.snippet.path, []).append(
            {
                "line": result.line,
                "claim": result.snippet.trial.kind,
                "arch": result.snippet.trial.arch or None,
                "holds": outcome.passed,
                "message": outcome.message,
                "duration_s": round(outcome.duration_s, 3),
            }
        )
    return {
        "dsl": report.dsl,
        "pages": pages,
        "tried": report.tried,
        "fragments": report.fragments,
        "skipped": report.skipped,
        "problems": [{"path": p.path, "line": p.line, "reason": p.reason} for p in report.problems],
        "needs_recheck": {page_id: recheck.reason for page_id, recheck in report.rechecks.items()},
    }


def _arch(result: Result) -> str:
    return f"{result.snippet.trial.arch}: " if result.snippet.trial.arch else ""


def _print(line: str) -> None:
    """Pages and their code come from many hands: no control character may reach the terminal."""
    print("".join(c for c in line if c.isprintable()))


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\rtried {done} of {total} snippets", end=end, file=sys.stderr, flush=True)
