"""`wiki mcp`: its options."""

from __future__ import annotations

import argparse

from kwiki_ingest.wiki import open_wiki


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wiki mcp`."""
    parser.description = (
        "Serve the wiki, and the agent's runs where it is installed, as tools for coding agents: over "
        "standard input and output, or over HTTP on this machine alone. docs/mcp.md says how clients are "
        "set up."
    )
    parser.add_argument(
        "--http", type=_port, metavar="PORT", help="serve http://127.0.0.1:PORT/mcp instead of stdio"
    )
    parser.set_defaults(run=_serve)


def _serve(args: argparse.Namespace) -> int:
    import gc

    wiki = open_wiki(args.wiki)
    gc.disable()  # importing the SDK makes some hundred thousand objects that all stay
    from kwiki_ingest.mcp.server import serve

    gc.freeze()
    gc.enable()
    serve(wiki, args.http)
    return 0


def _port(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text} is no port; give a number from 1 to 65535")
    return int(text)
