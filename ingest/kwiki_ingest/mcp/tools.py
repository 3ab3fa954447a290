"""The wiki's own tools: search, read, look up, add a lesson, report what helped.

Everything heavy is imported when a tool is first called. Text of pages is quoted as data: pages come from
many hands, and whoever reads an answer may be a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kwiki_ingest.errors import WikiError
from kwiki_ingest.mcp.door import Door
from kwiki_ingest.quoting import NOTE, as_data
from kwiki_ingest.wiki import Wiki

MOST_HITS = 10
MOST_MEMBERS = 80


class Answer(BaseModel):
    """`note` says how quoted text is to be taken."""

    note: str = NOTE


class FoundPage(BaseModel):
    """A page that answers, with its best passage, quoted."""

    id: str
    title: str
    type: str
    arch: list[str]
    status: str
    confidence: str
    valid_when: str | None
    not_when: str | None
    needs_recheck: str | None
    """Why the page's code may not hold for the installed DSL."""
    text: str


class SearchAnswer(Answer):
    """The best pages first; none where nothing fits."""

    pages: list[FoundPage]
    stale: str | None
    """What the index does not know of yet."""


class PageAnswer(Answer):
    """A whole page, front matter included, quoted."""

    id: str
    path: str
    text: str


class ApiName(BaseModel):
    """A name of the installed DSL."""

    name: str
    kind: str
    signature: str | None
    summary: str
    deprecated: str | None
    members: list[str]


class ApiAnswer(BaseModel):
    """What the installed DSL has under that name."""

    dsl: str
    names: list[ApiName]


class HardwareAnswer(BaseModel):
    """Architectures by GPU name, or one GPU's facts with unit and source."""

    gpus: dict[str, str]
    facts: dict[str, dict[str, Any]]


class LessonAnswer(BaseModel):
    """What the write gate decided, or would decide."""

    action: Literal["added", "merged", "duplicate", "disputed", "refused"]
    id: str
    path: str | None
    reason: str
    nearest: list[str]
    """Ids of the nearest lessons of the same scope."""
    written: bool


class OutcomeAnswer(BaseModel):
    """How often the pages helped and hurt so far, in runs."""

    helped: dict[str, int]
    hurt: dict[str, int]


@dataclass(frozen=True)
class WikiTools:
    """The tools over one wiki."""

    wiki: Wiki

    def doors(self) -> list[Door]:
        """All of them."""
        expected = (WikiError,)
        return [
            Door(self.search_wiki, "Search the kernel wiki", expected),
            Door(self.read_page, "Read a page", expected),
            Door(self.lookup_api, "Look up a DSL name", expected),
            Door(self.hardware, "Look up a hardware number", expected),
            Door(self.add_lesson, "Add a lesson", expected, read_only=False),
            Door(self.report_outcome, "Report what helped", expected, read_only=False),
        ]

    def search_wiki(
        self,
        query: Annotated[str, Field(description="a question, a symptom or an identifier", max_length=1000)],
        arch: Annotated[str | None, Field(description="only pages for it or any, e.g. sm_90a")] = None,
        types: Annotated[list[str] | None, Field(description="only these, e.g. lesson, technique")] = None,
        limit: Annotated[int, Field(description="pages to give", ge=1, le=MOST_HITS)] = 5,
    ) -> SearchAnswer:
        """Find pages on CuTe-DSL, Hopper and Blackwell kernels by question, symptom or identifier.

        Ask before writing or tuning a kernel, and again with the compiler's message or the profiler's
        symptom. Few pages are better than many: read the one or two that fit with read_page.
        """
        from kwiki_ingest.index.freshness import stale_reason
        from kwiki_ingest.search.retrieve import search

        pages = [
            FoundPage(
                id=hit.page_id,
                title=hit.title,
                type=hit.type,
                arch=list(hit.arch),
                status=hit.status,
                confidence=hit.confidence,
                valid_when=hit.valid_when,
                not_when=hit.not_when,
                needs_recheck=hit.needs_recheck,
                text=as_data(hit.claim or hit.text, hit.page_id),
            )
            for hit in search(self.wiki, query, arch=arch, types=types, k=limit)
        ]
        return SearchAnswer(pages=pages, stale=stale_reason(self.wiki))

    def read_page(self, id: Annotated[str, Field(description="as search_wiki gives it")]) -> PageAnswer:
        """Read one page whole: its snippets compile for the architectures they claim."""
        from kwiki_ingest.load import find_page, read_source

        source = read_source(self.wiki, find_page(self.wiki, id))
        return PageAnswer(id=id, path=source.path, text=as_data(source.text, id))

    def lookup_api(
        self, name: Annotated[str, Field(description="as kernels write it, e.g. cute.make_tiled_copy_tv")]
    ) -> ApiAnswer:
        """Look a name up in the installed CuTe-DSL: signature, summary and members, or the nearest names.

        Ask before using a name from memory: the DSL changes from version to version.
        """
        from kwiki_ingest.truth.symbols import load_symbols

        table = load_symbols()
        found = table.find(name)
        return ApiAnswer(
            dsl=table.dsl,
            names=[
                ApiName(
                    name=symbol.name,
                    kind=symbol.kind,
                    signature=symbol.signature,
                    summary=symbol.summary,
                    deprecated=symbol.deprecated,
                    members=[m.name for m in table.members(symbol)[:MOST_MEMBERS]] if len(found) == 1 else [],
                )
                for symbol in found
            ],
        )

    def hardware(
        self,
        gpu: Annotated[str | None, Field(description="e.g. H200 SXM; none: the GPUs known")] = None,
        field: Annotated[str | None, Field(description="e.g. hbm_bandwidth_tbps; none: all")] = None,
    ) -> HardwareAnswer:
        """Hardware numbers by exact name, each with its unit and source. Nothing is guessed."""
        from kwiki_ingest.hardware import gpu as facts_of
        from kwiki_ingest.hardware import load_hardware, lookup

        if gpu is None:
            return HardwareAnswer(gpus={n: g.arch for n, g in load_hardware(self.wiki).items()}, facts={})
        entry = facts_of(self.wiki, gpu)
        facts = {field: lookup(self.wiki, gpu, field)} if field else entry.facts
        return HardwareAnswer(
            gpus={gpu: entry.arch},
            facts={name: fact.model_dump(mode="json", exclude_none=True) for name, fact in facts.items()},
        )

    def add_lesson(
        self,
        page: Annotated[
            str,
            Field(
                description="a Markdown page with front matter: title, claim, kind, technique, arch, op, and "
                "effect and evidence where it was measured; read_page of a lesson shows the form",
                max_length=200_000,
            ),
        ],
        dry_run: Annotated[bool, Field(description="say what would happen and write nothing")] = True,
    ) -> LessonAnswer:
        """Offer a lesson to the write gate, which checks form, evidence, duplicates and contradictions.

        Nothing is written unless dry_run is false; nothing is ever overwritten. A lesson without measured
        effect and evidence stays a candidate.
        """
        from kwiki_ingest.lessons.draft import read_draft
        from kwiki_ingest.lessons.gate import add_lesson
        from kwiki_ingest.vocabulary import load_vocabulary

        draft = read_draft(page, "the lesson", load_vocabulary(self.wiki))
        decision = add_lesson(
            self.wiki, draft.lesson, draft.body, free_id=not draft.has_own_id, dry_run=dry_run
        )
        return LessonAnswer(
            action=decision.action,
            id=decision.page_id,
            path=decision.path,
            reason=decision.index_problem or decision.reason,
            nearest=list(decision.nearest),
            written=not dry_run and decision.action != "refused",
        )

    def report_outcome(
        self,
        run: Annotated[str, Field(description="names the work, so that it counts once", max_length=200)],
        helped: Annotated[tuple[str, ...], Field(description="ids of pages that led to a gain")] = (),
        hurt: Annotated[tuple[str, ...], Field(description="ids of pages whose advice failed")] = (),
    ) -> OutcomeAnswer:
        """Say which pages helped and which hurt in a piece of work. A page counts once for each `run`."""
        from kwiki_ingest.lessons.ledger import counts, record
        from kwiki_ingest.load import find_page

        for page_id in (*helped, *hurt):
            find_page(self.wiki, page_id)
        record(self.wiki, "helped", helped, run=run)
        record(self.wiki, "hurt", hurt, run=run)
        known = counts(self.wiki)
        return OutcomeAnswer(
            helped={page_id: known[page_id].helped for page_id in helped},
            hurt={page_id: known[page_id].hurt for page_id in hurt},
        )
