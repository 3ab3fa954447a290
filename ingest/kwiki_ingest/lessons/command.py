"""`wiki add-lesson`: its options. What they mean is in `intake`, imported only when a lesson comes."""

from __future__ import annotations

import argparse

from kwiki_ingest.wiki import Wiki

# Spelled out, so that `wiki --help` need not import the page records; a test holds both equal.
KINDS = ("technique", "tuning", "api-trap", "failure", "hardware-fact")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wiki add-lesson`."""
    parser.description = (
        "Add one lesson. Without options it asks; with --file it reads a Markdown page with front matter "
        "(- for standard input); with the other options it builds the page. A lesson that is already there "
        "gets the new evidence instead, and nothing is ever overwritten."
    )
    parser.add_argument("--file", metavar="FILE", help="a lesson page; - reads standard input")
    page = parser.add_argument_group("the lesson")
    page.add_argument("--title", help="one line that names it")
    page.add_argument("--claim", help="what to do or know, in one or two sentences")
    page.add_argument("--kind", choices=KINDS)
    page.add_argument("--technique", metavar="SLUG", help="e.g. vector-width")
    page.add_argument("--arch", action="append", help="e.g. sm_90a; may be repeated")
    page.add_argument("--op", help="operator family, e.g. rmsnorm")
    page.add_argument("--dtype", action="append", help="e.g. bfloat16; may be repeated")
    page.add_argument("--dsl", metavar="RANGE", help="DSL versions it holds for (default: >=4.8)")
    page.add_argument("--knob", action="append", metavar="'NAME OP VALUE'", help="e.g. 'stages >= 3'")
    page.add_argument(
        "--trigger", action="append", metavar="'METRIC OP VALUE'", help="e.g. 'spill_bytes > 0'"
    )
    page.add_argument("--symptom", action="append")
    page.add_argument("--tag", action="append")
    page.add_argument("--alias", action="append", help="another name to find it by, also Chinese")
    page.add_argument("--related", action="append", metavar="ID")
    page.add_argument("--supersedes", action="append", metavar="ID")
    page.add_argument("--valid-when", metavar="TEXT", help="e.g. 'hidden_size >= 4096'")
    page.add_argument("--not-when", metavar="TEXT")
    page.add_argument("--body", metavar="TEXT", help="details in Markdown (default: the claim)")
    page.add_argument("--id", metavar="SLUG", help="file name (default: from the title)")
    proof = parser.add_argument_group("its proof; without it the lesson stays an experimental candidate")
    proof.add_argument("--metric", help="e.g. latency_us")
    proof.add_argument("--before", type=float)
    proof.add_argument("--after", type=float)
    proof.add_argument("--unit", help="e.g. us")
    proof.add_argument(
        "--ci95", type=float, nargs=2, metavar=("LOW", "HIGH"), help="of the ratio after/before"
    )
    proof.add_argument("--n", type=int, help="samples on each side")
    proof.add_argument("--baseline", help="what `before` is")
    proof.add_argument("--evidence", action="append", metavar="RUN[:HASH,...]", help="run id and code hashes")
    proof.add_argument("--evidence-file", action="append", metavar="FILE", help="summary to store, RUN.json")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen and write nothing")
    parser.add_argument("--json", action="store_true", help="print the decision as JSON")


def run(args: argparse.Namespace, wiki: Wiki) -> int:
    """Add the lesson that `args` describe: 0 it stands, 1 it was refused or not indexed, 2 wrong usage."""
    from kwiki_ingest.lessons.intake import take_in

    return take_in(args, wiki)
