"""What a model may do between its brief and its submissions: tools with strict inputs.

Every call is answered with text. A call that asks for what there is not is answered with one sentence that
says so. No input names a path, nothing runs outside the judge's build, and no call can end a run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kwiki_ingest.errors import WikiError
from kwiki_ingest.lessons.ledger import record
from kwiki_ingest.truth.symbols import SymbolTable, load_symbols
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.errors import JudgeError
from kwiki_kernels.evaluation import Knobs, KnobValue
from kwiki_kernels.executor import Executor
from kwiki_kernels.job import Candidate, Job
from pydantic import BaseModel, ConfigDict, ValidationError

from kwiki_agent import __version__
from kwiki_agent.contract import AgentError
from kwiki_agent.policy import Brief, answers, candidate_id
from kwiki_agent.policy.directions import Direction, Ranking, check_direction
from kwiki_agent.profiling import read_diagnosis
from kwiki_agent.runs import RunFolder
from kwiki_agent.submission import Draft, check_drafts
from kwiki_agent.trials import BASELINE, last_verdict

MAX_TRIAL_COMPILES = 8
"""In one round. Each takes seconds of this machine; who needs more should submit and read the log."""


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


class KnobSetting(_Input):
    name: str
    value: bool | int | str


class SearchWiki(_Input):
    """Search the wiki of GPU kernel knowledge. Answers with the best pages for this architecture."""

    query: str


class ReadPage(_Input):
    """Read one page of the wiki whole, by the id that a search or a card showed."""

    page: str


class LookupApi(_Input):
    """Look a name up in the installed CuTe DSL, for example cute.copy: signature, summary, members."""

    name: str


class Hardware(_Input):
    """Hardware numbers with their sources. With gpu null: the names of all GPUs in the table."""

    gpu: str | None


class TrialCompile(_Input):
    """Compile a kernel for the run's architecture without submitting it. Nothing is run or timed."""

    source: str
    knobs: list[KnobSetting]


class ReadProfile(_Input):
    """All about one candidate: its code, errors, times per workload, roofline, binary, diagnosis."""

    candidate: str


class RankDirections(_Input):
    """State the directions worth trying, the most promising first, before writing code for any of them."""

    directions: list[Direction]


class SubmitCandidate(_Input):
    """Submit a kernel to be judged: its whole module, the direction it drafts and what it tries."""

    direction: str
    intent: str
    cards: list[str]
    source: str
    knobs: list[KnobSetting]


class Answer(NamedTuple):
    text: str
    is_error: bool = False


class ToolError(Exception):
    """A call cannot be answered; the message is one sentence for the model."""


TOOLS: dict[str, type[_Input]] = {
    "search_wiki": SearchWiki, "read_page": ReadPage, "lookup_api": LookupApi, "hardware": Hardware,
    "trial_compile": TrialCompile, "read_profile": ReadProfile, "rank_directions": RankDirections,
    "submit_candidate": SubmitCandidate,
}  # fmt: skip


def tool_definitions() -> list[dict[str, Any]]:
    """The tools as the Messages API wants them, inputs held to their schema by the server too."""
    return [
        {"name": name, "description": model.__doc__, "input_schema": schema_of(model), "strict": True}
        for name, model in TOOLS.items()
    ]


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """A JSON schema without titles and descriptions, all fields required, no others allowed."""

    def strip(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: strip(v) for k, v in node.items() if k not in ("title", "description", "default")}
        return [strip(item) for item in node] if isinstance(node, list) else node

    schema: dict[str, Any] = strip(model.model_json_schema())
    return schema


@dataclass
class Toolbox:
    """The tools of one round. The same calls do the same again, so that a round can be replayed."""

    brief: Brief
    run: RunFolder
    wiki: Wiki
    builder: Executor
    submitted: list[Candidate] = field(default_factory=list)
    trial_compiles: set[str] = field(default_factory=set)
    symbols: Callable[[], SymbolTable] = load_symbols

    @property
    def room(self) -> int:
        """Submissions that this round still takes."""
        contract, brief = self.brief.contract, self.brief
        left = contract.max_candidates - len(brief.trials)
        return min(contract.batch, left) - len(self.submitted)

    def call(self, name: str, given: object) -> Answer:
        """Answer one call; whatever is wrong with it becomes an error that the model can read."""
        model = TOOLS.get(name)
        if model is None:
            return Answer(f"there is no tool '{name}'; there are {', '.join(TOOLS)}", True)
        try:
            return Answer(getattr(self, f"_{name}")(model.model_validate(given)))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "input"
            return Answer(f"{name}: {where}: {first['msg']}", True)
        except (ToolError, AgentError, WikiError, JudgeError) as error:
            return Answer(str(error), True)

    def _search_wiki(self, asked: SearchWiki) -> str:
        hits = answers.search_wiki(self.wiki, asked.query, self.brief.contract.arch)
        record(self.wiki, "retrieved", [hit.page_id for hit in hits], run=self.run.id)
        return answers.hits_text(hits)

    def _read_page(self, asked: ReadPage) -> str:
        return answers.page_text(self.wiki, asked.page)

    def _lookup_api(self, asked: LookupApi) -> str:
        return answers.symbol_text(self.symbols(), asked.name)

    def _hardware(self, asked: Hardware) -> str:
        return answers.hardware_text(self.wiki, asked.gpu)

    def _trial_compile(self, asked: TrialCompile) -> str:
        draft = self._draft(asked.source, asked.knobs, intent="trial compile")
        check_drafts([draft], (), task=self.brief.task, contract=self.brief.contract, wiki=self.wiki)
        identity = json.dumps([draft.source, draft.knobs], sort_keys=True)
        mark = hashlib.sha256(identity.encode()).hexdigest()[:16]
        if mark not in self.trial_compiles and len(self.trial_compiles) >= MAX_TRIAL_COMPILES:
            raise ToolError(
                f"this round had its {MAX_TRIAL_COMPILES} trial compiles: submit, and read the log"
            )
        self.trial_compiles.add(mark)
        candidate = Candidate(id=f"trial-{mark}", source=draft.source, knobs=draft.knobs)
        return answers.build_text(self._compile(candidate))

    def _read_profile(self, asked: ReadProfile) -> str:
        known = {trial.candidate.id: trial.candidate for trial in self.brief.trials}
        if asked.candidate not in known:
            raise ToolError(
                f"there is no candidate '{asked.candidate}'; there are {', '.join(known) or 'none'}"
            )
        verdict, job = last_verdict(self.run, asked.candidate)
        if verdict is None:
            raise ToolError(f"nothing is known of {asked.candidate} yet")
        beside = self.run.evaluations(job) if job else {}
        others = {
            n: beside[n] for n in (BASELINE, self.brief.incumbent) if n in beside and n != asked.candidate
        }
        profiled = read_diagnosis(self.run, asked.candidate)
        code = answers.code_text(known[asked.candidate], self.brief.task)
        return f"{code}\n{answers.measurement_text(asked.candidate, verdict, others, profiled)}"

    def _rank_directions(self, asked: RankDirections) -> str:
        ranking = Ranking.load(self.run).merged(asked.directions)
        ranking.save(self.run)
        return "ranked: " + ", ".join(direction.name for direction in ranking.directions)

    def _submit_candidate(self, asked: SubmitCandidate) -> str:
        if self.room <= 0:
            raise ToolError("this round takes no more candidates")
        if asked.direction not in Ranking.load(self.run):
            raise ToolError(f"direction '{asked.direction}' was not ranked: call rank_directions first")
        check_direction(asked.direction, self.brief, self.submitted)
        draft = self._draft(
            asked.source,
            asked.knobs,
            intent=asked.intent,
            direction=asked.direction,
            cards=tuple(asked.cards),
        )
        tried = [*(trial.candidate for trial in self.brief.trials), *self.submitted]
        check_drafts([draft], tried, task=self.brief.task, contract=self.brief.contract, wiki=self.wiki)
        candidate = Candidate(
            id=candidate_id(len(tried) + 1), parent=self.brief.incumbent, intent=draft.intent,
            direction=draft.direction, policy="claude", cards=draft.cards, source=draft.source,
            knobs=draft.knobs,
        )  # fmt: skip
        self.submitted.append(candidate)
        return f"taken as {candidate.id}; this round takes {self.room} more"

    def _draft(self, source: str, knobs: list[KnobSetting], **words: Any) -> Draft:
        space, fixed = self.brief.task.knob_space, self.brief.contract.fixed_knobs
        chosen: Knobs = {**(space.default if space else {}), **fixed}
        asked: dict[str, KnobValue] = {knob.name: knob.value for knob in knobs}
        return Draft.model_validate(
            {"name": "the kernel", "source": source, "knobs": chosen | asked, **words}
        )

    def _compile(self, candidate: Candidate) -> Any:
        contract = self.brief.contract
        job = Job(
            id=f"{self.run.id}.{candidate.id}", task_files=self.brief.task.files,
            workload_uuids=contract.workloads, arch=contract.arch, candidates=(candidate,), stage="build",
            seed=contract.seed, protocol=contract.protocol, kernel_wiki_version=__version__,
        )  # fmt: skip
        if self.builder.collect(job.id) is None:
            self.builder.submit(job)
        verdicts = self.builder.collect(job.id)
        if not verdicts:
            raise ToolError("the build gave no verdict")
        return verdicts[0]
